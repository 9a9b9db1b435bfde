"""plan: steps whose memory follows from what kernels and autograd do inside; held against the counting allocator."""

import pytest
import torch
from torch import nn

import surefoot
from surefoot.meters import allocator
from tests.counted import counted

pytestmark = pytest.mark.skipif(not allocator.available(), reason="needs a C++ compiler")


def assert_planned_as_counted(recipe: surefoot.Recipe, rel: float = 1e-3) -> None:
    assert surefoot.plan(recipe).steady.peak.peak_bytes == pytest.approx(counted(recipe), rel=rel)


ALGEBRA = {
    "cholesky": lambda c: -torch.linalg.cholesky(c).diagonal().log().sum(),
    "eigvalsh": lambda c: torch.linalg.eigvalsh(c).log().square().sum(),
    "eigh": lambda c: torch.linalg.eigh(c)[1][:, -4:].square().mean() + c.trace(),
    "solve": lambda c: torch.linalg.solve(c, c[:, :8].detach()).square().mean(),
    "inv": lambda c: torch.linalg.inv(c).trace(),
    "slogdet": lambda c: torch.linalg.slogdet(c)[1],
    "svdvals": lambda c: torch.linalg.svdvals(c).sum(),
    "qr": lambda c: torch.linalg.qr(c)[0].abs().mean(),
}


@pytest.mark.parametrize("use", ALGEBRA.values(), ids=ALGEBRA)
def test_linear_algebra(use):
    """The nodes of its backward add up what they make for themselves: autograd does not."""

    def loss(model, batch):
        x = model(batch[0])
        return use(x.t() @ x / len(x) + 0.1 * torch.eye(x.shape[1]))

    assert_planned_as_counted(surefoot.recipe_of(lambda: nn.Linear(128, 96), (torch.randn(192, 128),), loss=loss))


def test_two_gradients_of_one_node_are_summed_in_place():
    held = []

    def loss(model, batch):
        x = model(batch[0])
        held[:] = [x]  # else its memory would be free when they are summed
        return (x * x).sum()

    assert_planned_as_counted(surefoot.recipe_of(lambda: nn.Linear(32, 512), (torch.randn(512, 32),), loss=loss))


SCATTERED = {
    "gather": lambda x: x.gather(1, torch.arange(64).expand(len(x), -1)),
    "index": lambda x: x[torch.arange(64)],
    "index_select": lambda x: x.index_select(0, torch.arange(64)),
    "max": lambda x: x.max(1)[0],
    "topk": lambda x: x.topk(4)[0],
    "sort": lambda x: x.sort()[0],
    "median": lambda x: x.median(1)[0],
    "known mask": lambda x: x[torch.arange(len(x)) % 3 == 0],
    "known mask of columns": lambda x: x[:, torch.arange(x.shape[1]) % 3 == 0],
    "selected by a known mask": lambda x: x.masked_select(torch.arange(x.shape[1]) % 3 == 0),
}


@pytest.mark.parametrize("use", SCATTERED.values(), ids=SCATTERED)
def test_gradients_that_are_scattered_are_written_in_place(use):
    held = []

    def loss(model, batch):
        x = model(batch[0])
        held[:] = [x]
        return use(x).square().sum()

    recipe = surefoot.recipe_of(lambda: nn.Linear(32, 512), (torch.randn(512, 32),), loss=loss)
    assert_planned_as_counted(recipe)
    assert surefoot.plan(recipe).assumptions == ()


def test_memory_that_depends_on_values_is_said_to_be_not_validated():
    recipe = surefoot.recipe_of(
        lambda: nn.Linear(16, 16), (torch.randn(16, 16),), loss=lambda model, batch: model(batch[0]).matrix_exp().mean()
    )
    assert any("linalg_matrix_exp" in note and "not validated" in note for note in surefoot.plan(recipe).assumptions)
