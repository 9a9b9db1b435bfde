"""A loop goes on whatever goes wrong in watching it, and is told so."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

import surefoot
from surefoot.checks.loop.gradients import Gradients
from surefoot.checks.losses.loss_calls import Losses
from surefoot.checks.losses.push_direction import PushDirections
from surefoot.checks.registry import CHECKS
from surefoot.checks.run_throttle import RunThrottle
from surefoot.checks.saved_state.files import Files
from surefoot.checks.updates.schedules import Schedules
from surefoot.errors import RecipeError
from surefoot.reports.sarif import sarif_text

PLACES = {
    "a listener": (Gradients, "update_ends"),
    "a function of torch's": (Losses, "called"),
    "a hook of a tensor": (Losses, "_weigh"),
    "a hook of a prediction": (PushDirections, "_pushed"),
    "a graph": (Gradients, "graph_seen"),
    "a part that stays": (Schedules, "update_begins"),
    "what was seen": (Files, "facts"),
}


def broken(*_: object, **__: object) -> None:
    raise KeyError("nothing of the kind")


def train(steps: int = 6) -> list[float]:
    torch.manual_seed(0)
    model, losses = nn.Linear(4, 1), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        x = torch.randn(8, 4)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def watched() -> tuple[list[float], surefoot.Findings]:
    with surefoot.watch() as seen:
        losses = train()
    return losses, seen.findings


@pytest.mark.parametrize("place", PLACES)
def test_a_loop_ends_as_it_would_and_is_told_why_nothing_was_found(place, monkeypatch):
    plain = train()
    part, name = PLACES[place]
    monkeypatch.setattr(part, name, broken)
    with pytest.warns(RuntimeWarning, match="surefoot stopped checking: KeyError") as said:
        losses, found = watched()
    assert losses == plain
    assert len(said) == 1
    assert found.failure.startswith("KeyError: 'nothing of the kind' (")
    assert (found.findings, found.checks) == ((), ())


def test_a_check_that_fails_is_said_and_not_raised(monkeypatch):
    monkeypatch.setitem(CHECKS, "missing-update", broken)
    with surefoot.watch() as seen:
        train()
    with pytest.warns(RuntimeWarning):
        assert seen.findings.failure.startswith("KeyError")


def test_a_name_that_is_no_check_is_still_refused():
    with surefoot.watch(allow=["nonsense"]) as seen:
        train()
    with pytest.raises(RecipeError, match="no check is called 'nonsense'"):
        _ = seen.findings


def test_whoever_looks_for_the_cause_has_it_raised(monkeypatch):
    monkeypatch.setenv("SUREFOOT_RAISE", "1")
    monkeypatch.setattr(Losses, "called", broken)
    with pytest.raises(KeyError), surefoot.watch():
        train()


def test_an_error_of_the_loop_is_its_own():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), surefoot.watch():
        nn.Linear(4, 1)(torch.randn(2, 3))


def test_glances_of_a_long_run_spare_it(monkeypatch):
    monkeypatch.setattr(Gradients, "update_ends", broken)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    glances = RunThrottle(model, optimizer)
    loss = model(torch.randn(2, 4)).sum()
    with glances.at(1):
        loss.backward()
        with pytest.warns(RuntimeWarning, match="stopped checking"):
            optimizer.step()
    assert glances.new_findings() == []


def test_sarif_says_that_nothing_was_looked_at():
    run = json.loads(sarif_text(surefoot.Findings("a", (), failure="KeyError: 'x'")))["runs"][0]
    assert run["invocations"][0]["executionSuccessful"] is False
    assert "invocations" not in json.loads(sarif_text(surefoot.Findings("a", ())))["runs"][0]


def test_a_script_that_is_watched_prints_all_that_it_prints(tmp_path: Path):
    """One observer fails in the middle of an update."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import torch
        from surefoot.checks.loop.gradients import Gradients
        def broken(*_, **__): raise KeyError("x")
        Gradients._read = broken
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(120):
            optimizer.zero_grad()
            model(torch.ones(3, 2)).sum().backward()
            optimizer.step()
        print("trained")
    """)
    )
    ran = subprocess.run(
        [sys.executable, "-m", "surefoot", "watch", str(script)], capture_output=True, text=True, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert "trained" in ran.stdout
    told = " ".join(ran.stdout.split())
    assert "the checks did not finish, because surefoot failed: KeyError: 'x' (" in told
    assert "nothing found" not in told


@pytest.fixture(autouse=True)
def spared(monkeypatch):
    monkeypatch.delenv("SUREFOOT_RAISE")
