"""A library that runs the loop is named, and findings point at a line that the user can change."""

import sys
import textwrap

import pytest

from surefoot.watch import watch_script

LIBRARY = """
class Trainer:
    def __init__(self, model, loss, optimizer, batches):
        self.model, self.loss, self.optimizer, self.batches = model, loss, optimizer, batches

    def train(self):
        for x, y in self.batches:
            self.step(x, y)

    def step(self, x, y):
        self.loss(self.model, x, y).backward()
        self.optimizer.step()
        {clear}

def step(optimizer):
    optimizer.step()
"""
SCRIPT = """
import torch
from torch import nn
import somebodys

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [(torch.randn(8, 4), torch.randint(0, 2, (8,))) for _ in range(6)]

def loss(model, x, y):
    return nn.functional.cross_entropy(model(x){softmax}, y)  # the loss

{loop}
"""
DRIVEN = "somebodys.Trainer(model, loss, optimizer, batches).train()  # the loop"
OWN = """
for x, y in batches:
    loss(model, x, y).backward()  # the backward
    somebodys.step(optimizer)
"""


@pytest.fixture
def found(tmp_path, monkeypatch):
    def watched(*, loop=DRIVEN, softmax="", clear=""):
        library = tmp_path / "site-packages"
        library.mkdir()
        (library / "somebodys.py").write_text(LIBRARY.format(clear=clear))
        monkeypatch.syspath_prepend(str(library))
        monkeypatch.delitem(sys.modules, "somebodys", raising=False)
        script = tmp_path / "train.py"
        script.write_text(SCRIPT.format(loop=textwrap.dedent(loop), softmax=softmax))
        (finding,) = watch_script(str(script)).findings.findings
        lines = {line.partition("  # ")[2]: number for number, line in enumerate(script.read_text().split("\n"), 1)}
        return finding, {name: f"{script}:{number}" for name, number in lines.items()}

    return watched


def test_a_finding_about_the_loop_names_the_library_that_runs_it(found):
    finding, lines = found()
    assert finding.check == "missing-zero-grad"
    assert finding.where == f"{lines['the loop']} (somebodys Trainer.train)"
    assert finding.remedy.endswith("somebodys Trainer.train does this by itself: override its method")


def test_a_finding_about_the_loss_points_at_the_line_that_computes_it(found):
    finding, lines = found(softmax=".softmax(1)", clear="self.optimizer.zero_grad()")
    assert finding.check == "softmax-before-cross-entropy"
    assert finding.where == lines["the loss"]


def test_a_library_that_only_makes_the_update_does_not_run_the_loop(found):
    finding, lines = found(loop=OWN)
    assert (finding.check, finding.where) == ("missing-zero-grad", lines["the backward"])
