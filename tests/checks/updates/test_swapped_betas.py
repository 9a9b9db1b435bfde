"""swapped-betas: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch

from surefoot.checks.facts import Facts
from surefoot.checks.facts.loop import LoopFacts, Optimizing
from surefoot.checks.registry import CHECKS, judged
from tests.checks.programs import mlp, named, plain, twin


def adam(betas: tuple[float, float], kind=torch.optim.AdamW):
    model = mlp()
    return plain(model, optimizer=kind(model.parameters(), lr=1e-3, betas=betas))


@twin("swapped-betas")
def _(buggy):
    return adam((0.999, 0.9) if buggy else (0.9, 0.999))


@pytest.mark.parametrize("betas", [(0.9, 0.9), (0.0, 0.9), (0.5, 0.999)])
def test_other_betas_are_fine(betas):
    assert named(adam(betas)) == []


def test_every_optimizer_is_judged_by_itself():
    sound, swapped = (Optimizing("Adam", 1, 2, 0, (), 2, betas=betas) for betas in ((0.9, 0.99), (0.99, 0.9)))
    found = list(judged(CHECKS["swapped-betas"], Facts(LoopFacts(optimizers=(sound, swapped, sound)))))
    assert len(found) == 1
    assert "betas=(0.9, 0.99)" in found[0].remedy
