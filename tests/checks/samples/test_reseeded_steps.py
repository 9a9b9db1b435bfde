"""reseeded-steps: the buggy and the fixed program, variants, and what looks like it and is fine."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.checks.loaders import KINDS, TOLD, stepped
from tests.checks.programs import X, Y, looped, mlp, plain, twin

pytestmark = pytest.mark.sweep


@twin("reseeded-steps")
def _(buggy):
    model = mlp(nn.Dropout(0.5))
    return plain(model, after=lambda _: torch.manual_seed(0) if buggy else None)


@pytest.mark.parametrize("seeded", [True, False])
def test_a_seed_that_is_set_in_every_step_before_the_batch_is_drawn(seeded):
    def batch(step):
        torch.manual_seed(3 if seeded else step)
        noise = torch.randn(16, 6)
        return TOLD[16 * (step % 8) : 16 * (step % 8) + 16] + noise, KINDS[16 * (step % 8) : 16 * (step % 8) + 16]

    assert stepped(batch) == (["reseeded-steps"] if seeded else [])


@pytest.mark.parametrize("forked", [True, False])
def test_noise_drawn_in_a_fork_of_the_random_state_is_the_same_in_every_step(forked):
    def body(model, optimizer):
        with torch.random.fork_rng(enabled=forked):
            x = X + 0.1 * torch.randn_like(X)
        optimizer.zero_grad()
        F.cross_entropy(model(x), Y).backward()
        optimizer.step()

    assert looped(body) == (["reseeded-steps"] if forked else [])


def own_of_numpy(step):
    return torch.from_numpy(np.random.default_rng(step).normal(size=(16, 6)).astype(np.float32))


def own_of_torch(step):
    return torch.randn(16, 6, generator=torch.Generator().manual_seed(step))


def seeded_numpy(step):
    np.random.seed(step)
    return np.random.random()


def seeded_python(step):
    random.seed(step)
    return random.random()


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("draw", [seeded_python, seeded_numpy, own_of_torch, own_of_numpy])
def test_whatever_generator_is_seeded_anew_in_every_step(draw, again):
    def batch(step):
        rows = torch.randperm(128)[:16]
        return TOLD[rows] + 0.1 * draw(7 if again else step), KINDS[rows]

    assert stepped(batch) == (["reseeded-steps"] if again else [])


def test_what_is_drawn_alike_once_per_pass_is_no_noise_of_steps():
    def batch(step):
        if step % 4 == 0:
            own_of_torch(3)
        rows = torch.arange(16 * (step % 4), 16 * (step % 4) + 16)
        return TOLD[rows], KINDS[rows]

    assert stepped(batch) == []
