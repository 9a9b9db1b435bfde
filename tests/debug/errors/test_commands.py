"""How watch, train and check end when torch raises: the user's lines, torch's, the explanation; none of surefoot's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from surefoot.cli import main as cli

SCRIPT = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        h = self.first(x)
        return self.head(h)

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.ones(3, 2, 4):
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
"""
RECIPE = """
import torch
from torch import nn
from surefoot import Recipe

def loss_of(model, batch):
    h = torch.sigmoid(model(batch))
    h *= 2
    return h.mean()

def mine() -> Recipe:
    return Recipe(
        model=lambda: nn.Linear(4, 4),
        data=lambda: [torch.ones(4) for _ in range(8)],
        loss=loss_of,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        micro_batch_size=4,
        max_steps=2,
    )
"""


@pytest.fixture
def run_command(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("SUREFOOT_RAISE", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("script.py").write_text(SCRIPT)
    Path("mine.py").write_text(RECIPE)

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["surefoot", *words])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return left.value.code, capsys.readouterr().err

    return run


def test_watch_shows_torchs_frames_and_none_of_ours(run_command):
    code, said = run_command("watch", "script.py")
    assert code == 1
    files = [line.split('"')[1] for line in said.splitlines() if line.startswith("  File ")]
    assert [Path(each).name for each in files[:2]] == ["script.py", "script.py"]
    assert Path(files[-1]).parts[-3:] == ("nn", "modules", "linear.py")
    assert "surefoot/" not in "".join(files)
    assert not {"_ops.py", "_compile.py", "overrides.py"} & {Path(each).name for each in files}
    assert "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x8 and 6x2)" in said
    assert "Explained (script.py:13): `head` (Linear) takes 6 features and gets 8" in said
    assert "script.py:8  self.first = nn.Linear(4, 8)" in said
    assert "script.py:9  self.head = nn.Linear(6, 2)" in said


@pytest.mark.parametrize("words", [("check",), ("train", "--no-plan", "--run", "run")], ids=["check", "train"])
def test_a_recipes_backward_names_the_line_of_its_loss(run_command, words):
    code, said = run_command(words[0], "mine.py", *words[1:])
    assert code == 1
    assert said.startswith("RuntimeError: one of the variables needed for gradient computation")
    assert "`mul_` on line 8 changes in place a tensor that `sigmoid` on line 7 had saved" in said
    assert "mine.py:8  h *= 2" in said


def test_an_explanation_that_fails_hides_no_error(run_command, monkeypatch):
    def broken(*_: object) -> None:
        raise LookupError("of ours")

    monkeypatch.setattr("surefoot.debug.errors.explain._facts", broken)
    code, said = run_command("watch", "script.py")
    assert code == 1
    assert "RuntimeError: mat1 and mat2 shapes cannot be multiplied" in said
    assert "surefoot could not explain it: LookupError: of ours" in said


def test_being_ready_to_explain_costs_nothing(tmp_path):
    """A script that ends well loads no part of the explanations: there is no hook, no mode and no note."""
    (tmp_path / "script.py").write_text(SCRIPT.replace("nn.Linear(6, 2)", "nn.Linear(8, 2)"))
    code = "import sys; from surefoot.watch import watch_script; print(watch_script('script.py').steps); "
    code += "print([each for each in sys.modules if each.startswith('surefoot.debug.errors')])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ.copy(), capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[-3:-1] == ["3", "[]"]
