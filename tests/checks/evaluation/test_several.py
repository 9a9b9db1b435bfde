"""Tests that concern several rules about evaluation."""

import pytest

from surefoot.watch import watch_script

pytestmark = pytest.mark.sweep

RIGHT = {"mode": "model.eval()", "reduction": "sum", "border": "0.0", "count": "len(val)"}
SCRIPT = """
import torch, torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(130, 6)
y = (x[:, 0] > x[:, 1]).float()
train, val = TensorDataset(x[:100], y[:100]), TensorDataset(x[100:], y[100:])
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def evaluate():
    {mode}
    right = batches = 0
    losses = []
    with torch.no_grad():
        for a, b in DataLoader(val, 8):
            logits = model(a)[:, 0]
            losses.append(F.binary_cross_entropy_with_logits(logits, b, reduction="{reduction}").item())
            right += ((logits > {border}) == b.bool()).sum().item()
    return sum(losses) / {count}, right / len(val)

for epoch in range(3):
    model.train()
    for a, b in DataLoader(train, 5, shuffle=True):
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(a)[:, 0], b).backward()
        optimizer.step()
    print(*evaluate())
"""


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({}, None),
        ({"mode": "pass"}, "training-mode-in-evaluation"),
        ({"border": "0.5"}, "threshold-on-logits"),
        ({"reduction": "mean", "count": "len(losses)"}, "unweighted-batch-means"),
    ],
)
@pytest.mark.parametrize("checked", [7, 100])
def test_the_first_evaluation_is_looked_at_whenever_it_comes(wrong, name, checked, tmp_path, monkeypatch):
    monkeypatch.setitem(watch_script.__globals__, "CHECKED_STEPS", checked)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(**RIGHT | wrong))
    found = [each.check for each in watch_script(str(script)).findings.findings]
    assert found == ([name] if name else [])


@pytest.mark.parametrize("mode", ["model.eval()", "pass"])
def test_an_evaluation_is_looked_at_although_another_line_has_run_the_model_without_gradients(
    mode, tmp_path, monkeypatch
):
    monkeypatch.setitem(watch_script.__globals__, "CHECKED_STEPS", 7)
    script = tmp_path / "script.py"
    sample = "    with torch.no_grad():\n        model.eval()(x[:1])\n    model.train()\n    for a, b in"
    script.write_text(SCRIPT.format(**RIGHT | {"mode": mode}).replace("    model.train()\n    for a, b in", sample))
    found = [each.check for each in watch_script(str(script)).findings.findings]
    assert found == (["training-mode-in-evaluation"] if mode == "pass" else [])
