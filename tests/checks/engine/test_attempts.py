"""What probes could not try is in the record; an error of surefoot's own can be raised, and none is swallowed."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import surefoot
from surefoot.reports.console import as_text
from surefoot.reports.findings import findings_text


class FixedBatch(nn.Module):
    """Takes eight samples and no other number, as a model with a state of its own does."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        if len(x) != 8:
            raise ValueError("eight samples, please")
        return self.layer(x)


def watched(model: nn.Module) -> surefoot.Findings:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1] * 4)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        return seen.findings


def test_what_a_model_refuses_is_noted_and_no_failure():
    found = watched(FixedBatch())
    assert found.failure == ""
    assert any("ValueError: eight samples, please" in each for each in found.skipped), found.skipped


def test_a_probe_of_surefoots_own_that_fails_is_noted_or_raised(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SUREFOOT_RAISE", "1")
    monkeypatch.setattr("surefoot.checks.models.disturb_inputs.Dropouts", None)  # as if torch had changed under it
    with pytest.raises(TypeError, match="not callable"):
        watched(nn.Linear(4, 2))
    monkeypatch.delenv("SUREFOOT_RAISE")
    found = watched(nn.Linear(4, 2))
    assert found.failure == ""
    assert any("TypeError: 'NoneType' object is not callable (checks/models/" in each for each in found.skipped)
    assert "1 probe could not run; --json says why" in as_text(findings_text(found))


def test_no_failure_of_a_check_is_swallowed():
    """Every `except Exception` under checks/ notes the failure or passes it to the failsafe."""
    folder = Path(surefoot.__file__).parent / "checks"
    for file in folder.rglob("*.py"):
        swallows = re.findall(r"except Exception|suppress\(Exception", file.read_text(encoding="utf-8"))
        assert not swallows or file.name in ("attempts.py", "watcher.py"), file


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_layers_without_elements_are_looked_at_like_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SUREFOOT_RAISE", "1")
    found = watched(nn.Sequential(nn.Linear(4, 0), nn.ReLU(), nn.Linear(0, 0), nn.ReLU(), nn.Linear(0, 2)))
    assert found.failure == ""
