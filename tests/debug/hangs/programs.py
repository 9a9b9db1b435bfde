"""Trainings that never end, started as real processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import dedent

from surefoot.debug.hangs.processes import tree_of

READY = "ready"


@contextmanager
def hanging(folder: Path, source: str, *, launcher: tuple[str, ...] = (), lines: int = 1) -> Iterator[int]:
    """The pid of a script that has said so many times that it is where it will stay. It is killed in the end."""
    script = folder / "train.py"
    script.write_text(dedent(source))
    process = subprocess.Popen(
        [sys.executable, *launcher, str(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        said = []
        while "".join(said).count(READY) < lines:  # of two ranks that print at once, both may be in one line
            said.append(process.stdout.readline())
            assert said[-1], "".join(said)
        yield process.pid
    finally:
        for each in tree_of(process.pid):  # torchrun puts its ranks into sessions of their own
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
