"""made-and-never-used: the buggy and the fixed script, the line that is named, and recipes."""

import textwrap
from pathlib import Path

from surefoot.source.parsing import forget_files
from surefoot.watch import watch_script
from tests.checks.programs import named, twin

SCRIPT = """
import copy

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(64, 4), torch.arange(64) % 2
lowest, best = float("inf"), None
for epoch in range(4):
    for rows in torch.randperm(48).split(8):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        held = nn.functional.cross_entropy(model(x[48:]), y[48:]).item()
    if held < lowest:
        lowest, best = held, copy.deepcopy(model.state_dict())
{loaded}
print(lowest)
"""


def watched(folder: Path, loaded: str):
    folder.mkdir(exist_ok=True)
    file = folder / "train.py"
    file.write_text(textwrap.dedent(SCRIPT).format(loaded=loaded))
    forget_files()
    return watch_script(str(file)).findings


@twin("made-and-never-used")
def _(buggy):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return watched(Path(folder), "" if buggy else "model.load_state_dict(best)")


def test_the_line_that_makes_it_is_marked(tmp_path):
    found = watched(tmp_path, "")
    (finding,) = found.findings
    assert finding.where.endswith(":20")
    assert "`best`, a copy of the weights, is made, and nothing uses it" in finding.seen
    assert finding.marks[0].line == 20


def test_loaded_weights_are_used(tmp_path):
    assert named(watched(tmp_path, "model.load_state_dict(best)")) == []
