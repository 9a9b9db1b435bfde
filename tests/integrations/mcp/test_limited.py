"""A command ends with all its children: at its limit, at its own end, and when its caller is gone."""

import os
import subprocess
import sys

import pytest

from surefoot.integrations.mcp import limited
from tests.waiting import has_ended, text_in, until

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")

PARENT = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
print("told")
sys.exit(3) if sys.argv[2:] else time.sleep(600)
"""


def start(seconds: float, *command: str) -> subprocess.Popen:
    words = [sys.executable, "-I", limited.__file__, str(seconds), *command]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def read(process: subprocess.Popen) -> tuple[int, str]:
    printed = process.stdout.read()
    code = process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        pipe.close()
    return code, printed.decode()


def test_a_command_that_ends_in_time_leaves_no_child(tmp_path):
    process = start(100, sys.executable, "-c", PARENT, str(tmp_path / "pid"), "leave")
    assert read(process) == (3, "told\n")
    pid = int(text_in(tmp_path / "pid"))
    until(lambda: has_ended(pid))


def test_at_the_limit_the_children_end_too(tmp_path):
    process = start(5, sys.executable, "-uc", PARENT, str(tmp_path / "pid"))
    assert read(process) == (limited.TOO_LONG, "told\n")
    pid = int(text_in(tmp_path / "pid"))
    until(lambda: has_ended(pid))


def test_a_caller_that_is_gone_ends_all(tmp_path):
    process = start(600, sys.executable, "-c", PARENT, str(tmp_path / "pid"))
    pid = int(text_in(tmp_path / "pid"))
    process.stdin.close()
    until(lambda: has_ended(pid))
    assert read(process)[0] == 128 + 9


def test_only_the_last_of_an_endless_output_is_kept(tmp_path):
    many = limited.MOST_SAID * 5
    process = start(100, sys.executable, "-c", f"import sys; sys.stderr.write('x' * {many} + 'end'); print('out')")
    said = process.stderr.read()
    assert read(process) == (0, "out\n")
    assert len(said) == limited.MOST_SAID
    assert said.endswith(b"xend")
