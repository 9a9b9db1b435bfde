"""recomputation-differs: the buggy and the fixed program, variants, and what looks like it and is fine."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import surefoot
from tests.checks.programs import Module, X, Y, mlp, named, plain, twin

pytestmark = pytest.mark.sweep


@twin("recomputation-differs")
def _(buggy):
    rng = np.random.default_rng(0)

    class Noisy(nn.Linear):
        def forward(self, x):
            return super().forward(x * float(rng.uniform(0.5, 1.5)) if buggy else x)

    model = Module(lambda self, x: self.end(checkpoint(self.body, x, use_reentrant=False)),
                   body=lambda: nn.Sequential(Noisy(4, 8), nn.ReLU()), end=lambda: nn.Linear(8, 2))  # fmt: skip
    return plain(model)


def test_recomputation_that_draws_other_numbers_in_the_middle_of_a_module():
    drawn = torch.Generator().manual_seed(0)

    def model(generator):
        def block(self, x):
            h = self.begin(x).relu()
            mask = torch.rand(h.shape, generator=generator) if generator else torch.rand(h.shape)
            return self.middle(h * (0.5 + mask)).relu()

        return Module(
            lambda self, x: self.end(checkpoint(lambda given: block(self, given), x, use_reentrant=False)),
            begin=lambda: nn.Linear(4, 8),
            middle=lambda: nn.Linear(8, 8),
            end=lambda: nn.Linear(8, 2),
        )

    assert named(plain(model(None))) == []
    assert named(plain(model(drawn))) == ["recomputation-differs"]


class Recurring(nn.Module):
    """One block, many times, each of which is computed anew in backward."""

    def __init__(self, *, counts=False):
        super().__init__()
        self.block, self.head, self.counts, self.calls = nn.Linear(4, 4), nn.Linear(4, 2), counts, 0

    def _turn(self, x):
        self.calls += self.counts
        return torch.tanh(self.block(x * (1 + 0.1 * self.calls)))

    def forward(self, x):
        for _ in range(3):
            x = checkpoint(self._turn, x, use_reentrant=False)
        return self.head(x)


@pytest.mark.parametrize("counts", [True, False])
def test_a_block_that_runs_many_times_is_run_again_in_another_order(counts):
    assert ("recomputation-differs" in named(plain(Recurring(counts=counts)))) is counts


@pytest.mark.parametrize("evaluated", [True, False])
def test_recomputation_is_compared_with_the_forward_that_is_back_propagated(evaluated):
    body, head = mlp(nn.Dropout(0.5), classes=4), nn.Linear(4, 2)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    model = Module(
        lambda self, x: self.head(checkpoint(self.body, x, use_reentrant=False).relu()), body=body, head=head
    )
    with surefoot.watch(model, optimizer) as seen:
        for step in range(4):
            if evaluated:
                model.eval()
                with torch.no_grad():
                    model(X + step)
                model.train()
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
    assert named(seen.findings) == []
