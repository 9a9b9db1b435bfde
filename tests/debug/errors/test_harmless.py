"""Lines that run again to explain an error cannot act."""

import gc
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from surefoot.debug.errors.harmless import harmless
from surefoot.events.failsafe import RAISE


def acts(folder: Path) -> dict:
    there = folder / "there"
    there.write_text("kept")
    return {
        "write": lambda: there.write_text("gone"),
        "append": lambda: open(there, "a").close(),
        "create": lambda: (folder / "new").touch(),
        "remove": there.unlink,
        "rename": lambda: there.rename(folder / "other"),
        "mkdir": lambda: (folder / "made").mkdir(),
        "temporary": tempfile.mkdtemp,
        "process": lambda: subprocess.run([sys.executable, "-c", "pass"], check=True),
        "shell": lambda: os.system("true"),
        "network": lambda: socket.create_connection(("127.0.0.1", 9), timeout=1),
    }


@pytest.mark.parametrize("act", list(acts(Path(tempfile.mkdtemp()))))
def test_an_act_is_prevented(act, tmp_path):
    tried = acts(tmp_path)[act]
    with harmless(), pytest.raises(PermissionError, match="while surefoot runs these lines again"):
        tried()
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("there", "kept")]


def test_reading_and_computing_are_free_and_so_is_everything_afterwards(tmp_path):
    (tmp_path / "a").write_text("1")
    with harmless():
        assert (tmp_path / "a").read_text() == "1"
    (tmp_path / "b").write_text("2")


SCRIPT = """
import sys
import torch
from torch import nn

model = nn.Linear(4, 1)


def noted(loss):
    with open("notes.txt", "a") as notes:
        notes.write("a loss\\n")
    return loss


x = torch.ones(2, 4)
hidden = model(x).exp()
loss = noted(hidden.sum())
hidden.mul_(2)
loss.backward()
"""


def test_a_failed_backward_is_explained_without_writing_twice(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    plain = {name: value for name, value in os.environ.items() if name != RAISE}
    words = [sys.executable, "-m", "surefoot", "watch", "train.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=plain)
    assert done.returncode == 1
    assert "Explained (train.py:19)" in done.stderr
    assert "stopped checking" not in done.stderr
    assert (tmp_path / "notes.txt").read_text() == "a loss\n"


class Leaving:
    """Holds itself, so that it goes only when it is collected, and then sends a signal."""

    sent = 0

    def __init__(self) -> None:
        self.own = self

    def __del__(self) -> None:
        os.kill(os.getpid(), 0)
        Leaving.sent += 1


def test_what_goes_meanwhile_may_act_afterwards():
    Leaving.sent = 0
    Leaving()
    with harmless():
        kept = [[number] for number in range(100_000)]  # enough to have Python collect
        assert Leaving.sent == 0
    assert len(kept) == 100_000
    gc.collect()
    assert Leaving.sent == 1
