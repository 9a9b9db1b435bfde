"""Fixtures: a folder for checkpoints, and states that are easy to tell apart."""

from pathlib import Path
from typing import Any

import pytest
import torch

from surefoot.checkpoint.store import Checkpoints


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run" / "checkpoints"


@pytest.fixture
def checkpoints(folder: Path):
    """Synchronous, unless a test says otherwise."""
    folder.parent.mkdir(parents=True)
    found = Checkpoints(folder, asynchronous=False)
    yield found
    found.close()


def state(step: int, *, tensors: int = 4, size: int = 1000) -> dict[str, Any]:
    """Every element of every tensor tells the step: a mixture of two steps cannot go unseen."""
    made = {f"t{number}": torch.full((size,), float(step + number / 64)) for number in range(tensors)}
    return {"model": made, "step": step, "betas": (0.9, 0.95)}


def is_state(found: dict[str, Any], step: int) -> bool:
    wanted = state(step, tensors=len(found["model"]), size=found["model"]["t0"].numel())
    same = all(torch.equal(found["model"][name], tensor) for name, tensor in wanted["model"].items())
    return same and found["step"] == step and found["betas"] == (0.9, 0.95)
