"""The mistakes of a first hour, typed as people type them: at most four lines, the cause, and the next command.

`.ci/fresh` runs this file against the installed wheel.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch._dynamo  # noqa: F401  loaded once, for all forks

from surefoot.cli.main import main
from tests.waiting import until

MOST_LINES = 4
COLUMNS = 80
RECIPE = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from surefoot import Recipe

def loss(model, batch):
    x, y = batch
    return nn.functional.cross_entropy(model(x), y, reduction="sum"), len(y)

def reviews(hidden: int = 64, lr: float = 1e-2) -> Recipe:
    return Recipe(
        model=lambda: nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 2)),
        data=lambda: TensorDataset(torch.randn(256, 4), torch.randint(0, 2, (256,))),
        loss=loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        micro_batch_size=64,
        max_steps=20,
    )
"""
SECOND = "\n\ndef second(lr: float = 0.1) -> Recipe:\n    return reviews(lr=lr)\n"
SCRIPT = """
import torch
from torch import nn

model = nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    loss = ((model(torch.randn(16, 8)) - torch.randn(16, 1)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
FILES = {
    "reviews.py": RECIPE,
    "two.py": RECIPE + SECOND,
    "house_prices.py": SCRIPT,
    "shape.py": SCRIPT.replace("torch.randn(16, 8)", "torch.randn(16, 7)"),
    "syn.py": "import torch\nfor step in range(3)\n    print(step)\n",
    "notrain.py": "import torch\n\ntorch.ones(3).sum()\n",
    "nb.ipynb": json.dumps(
        {
            "cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "source": ["x = 1"]}],
            "metadata": {},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    ),
    "out.txt": "kept",
    "runs/empty/kept.txt": "",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("journey")
    for name, text in FILES.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    return made


def answer(folder: Path, words: str) -> tuple[int, list[str]]:
    """The exit code, and the lines that surefoot prints on a terminal of 80 columns."""
    said = folder / "said.out"
    child = os.fork()
    if not child:
        _in_child(folder, said, shlex.split(words))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    lines = [line for line in said.read_text().splitlines() if line.strip()]
    return code, lines


def below_the_traceback(lines: list[str]) -> list[str]:
    """The lines that surefoot adds to the user's own."""
    if not any(line.startswith("  File ") for line in lines):
        return lines
    return lines[max(at for at, line in enumerate(lines) if line.startswith("  ")) + 1 :]


def _in_child(folder: Path, said: Path, words: list[str]) -> None:
    """Types a command in a fork of this process, which has loaded torch."""
    code = 1
    try:
        written = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(written, 1)
        os.dup2(written, 2)
        os.chdir(folder)
        os.environ["COLUMNS"] = str(COLUMNS)
        os.environ.pop("SUREFOOT_RAISE", None)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        sys.argv, sys.path[0] = ["surefoot", *words], ""
        main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


MISTAKES = [
    ("plan gtp", 2, ["'gtp'", "did you mean 'gpt'"]),
    ("trian gpt", 2, ["'trian'", "Did you mean 'train'"]),
    ("train reviews.py hiden=3", 2, ["'hiden'", "did you mean 'hidden'", "--help"]),
    ("train reviews.py hidden=abc", 2, ["hidden='abc'", "whole number"]),
    ("train reviews.py hidden=-4", 1, ["negative dimension -4", "built the recipe's model"]),
    ("train reviews.py lr=1e400", 2, ["lr='1e400' is inf", "write a finite number"]),
    ("train reviews.py max_step=5", 2, ["'max_step'", "did you mean 'max_steps'"]),
    ("train nothere.py", 2, ["no file nothere.py"]),
    ("watch nothere.py", 2, ["no script nothere.py", "surefoot watch train.py"]),
    ("watch house_price.py", 2, ["no script house_price.py", "did you mean 'house_prices.py'"]),
    ("plan gpt --on h10", 2, ["'h10'", "'h100-sxm'", "surefoot hardware list"]),
    ("hardware show 409", 2, ["'409'", "did you mean 'rtx-4090'"]),
    ("watch syn.py", 1, ["SyntaxError", "Your code raised this"]),
    ("watch nb.ipynb", 2, ["nb.ipynb: no training was seen", "write them after --"]),
    ("watch notrain.py", 2, ["notrain.py: no training was seen", "write them after --"]),
    ("watch reviews.py", 0, ["reviews.py is a recipe", "surefoot check reviews.py"]),
    ("check house_prices.py", 2, ["is a script, not a recipe", "surefoot watch house_prices.py"]),
    ("train house_prices.py", 2, ["is a script, not a recipe", "surefoot watch house_prices.py"]),
    ("report runs/none", 2, ["there is no folder runs/none", "surefoot train RECIPE"]),
    ("report runs/empty", 2, ["runs/empty is not a run", "run.json"]),
    ("train reviews.py --run out.txt", 2, ["out.txt is a file", "name another directory"]),
    ("train reviews.py --run /proc/none/run", 2, ["could not be written", "run the same command again"]),
    ("plan two.py", 2, ["reviews, second", "write two.py:reviews"]),
    ("evaluate reviews.py", 2, ["reviews.py", "RECIPE KNOB=VALUE"]),
    ("predict runs/none x.jsonl", 2, ["runs/none", "surefoot train RECIPE"]),
    ("export runs/empty", 2, ["runs/empty is not a run", "surefoot train RECIPE"]),
    ("watch house_prices.py --steps", 2, ["'--steps' requires an argument", "watch --help"]),
    ("plan reviews.py --hidden 3", 2, ["--hidden", "hidden=3"]),
    ("watch shape.py --lr 3", 2, ["--lr", "surefoot watch shape.py -- --lr 3"]),
    ("stuck 999999", 2, ["no process 999999", "ps aux"]),
    ("plan gpt --on h100-sxm --budget memory=76", 2, ["memory=76GiB"]),
    ("watch shape.py:main", 2, ["no script shape.py:main", "write shape.py"]),
    ("finetune", 2, ["'finetune'", "surefoot train finetune"]),
    ("generate runs/none hello", 2, ["runs/none"]),
]


@pytest.mark.parametrize(("words", "code", "said"), MISTAKES, ids=[words for words, *_ in MISTAKES])
def test_a_mistake_is_answered_in_four_lines_with_its_cause_and_what_is_next(folder, words, code, said):
    exit_code, lines = answer(folder, words)
    lines = below_the_traceback(lines)
    text = " ".join(" ".join(lines).split())
    assert exit_code == code, text
    assert all(each in text for each in said), text
    assert len([part for line in lines for part in _wrapped(line)]) <= MOST_LINES, lines


def _wrapped(line: str) -> list[str]:
    """The rows that a line takes on the terminal."""
    return [line[at : at + COLUMNS] for at in range(0, len(line), COLUMNS)]


@pytest.mark.parametrize("name", ["h100", "4090", "8xh100", "p5.48xlarge", "rtx-3060"])
def test_the_names_of_devices_that_people_use_are_planned(folder, name):
    code, lines = answer(folder, f"plan reviews.py --on {name}")
    text = "\n".join(lines)
    assert code == 0, text
    assert "reviews fits " in text
    assert ("is taken for h100-sxm" in text) == (name in ("h100", "8xh100"))
    assert ("is 8 x h100-sxm" in text) == (name == "p5.48xlarge")


def test_a_shape_error_is_explained_in_a_screen(folder):
    """The traceback is the user's own; the explanation below it names the shapes and the line."""
    code, lines = answer(folder, "watch shape.py")
    assert code == 1
    assert "shape" in " ".join(lines)
    assert len(lines) <= 24


def test_a_killed_run_is_not_said_to_be_running(folder):
    words = "train reviews.py max_steps=100000 --run runs/killed --no-plan"
    child = subprocess.Popen(
        [sys.executable, "-m", "surefoot", *words.split()],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log = folder / "runs" / "killed" / "log.jsonl"
    until(log.exists, process=child)
    child.send_signal(signal.SIGKILL)
    child.wait()
    _, lines = answer(folder, "report runs/killed")
    text = " ".join(lines)
    assert "stopped without a word" in text
    assert "the same command starts it again" in text
    assert "running" not in text
