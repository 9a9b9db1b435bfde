"""DPO on a table of logits: the loss is that of its formula, and the reference leaves the model as it was."""

import math
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from surefoot.data.packing import IGNORED
from surefoot.data.pairs import bits_of
from surefoot.finetuning.dpo import as_reference, dpo_loss, dpo_metrics

TOKENS = 5
BATCH = {
    "input_ids": torch.tensor([[[0, 1, 2], [0, 3, 3]], [[4, 4, 1], [2, 0, 1]]]),
    "labels": torch.tensor([[[IGNORED, 2, 1], [IGNORED, 3, IGNORED]], [[IGNORED, 1, 0], [0, 1, 2]]]),
}


class Table(nn.Module):
    """Logits by the last token, and an adapter that adds to them."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(3)
        self.table = nn.Parameter(torch.randn(TOKENS, TOKENS, generator=draw), requires_grad=False)
        self.adapter = nn.Parameter(torch.randn(TOKENS, TOKENS, generator=draw))
        self.fixed_adapter = nn.Parameter(torch.zeros(TOKENS), requires_grad=False)
        self.is_adapted = True

    def forward(self, input_ids: Tensor) -> SimpleNamespace:
        table = self.table + self.adapter + self.fixed_adapter if self.is_adapted else self.table
        return SimpleNamespace(logits=table[input_ids])

    @contextmanager
    def disable_adapter(self):
        self.is_adapted = False
        yield
        self.is_adapted = True
        self.fixed_adapter.requires_grad_(True)  # as peft does


def log_probability(table: Tensor, tokens: list[int], labels: list[int]) -> float:
    pairs = [(token, label) for token, label in zip(tokens, labels, strict=True) if label != IGNORED]
    return sum(table[token].log_softmax(0)[label].item() for token, label in pairs)


def margins(model: Table, references: list[list[float]], beta: float) -> list[float]:
    table, found = (model.table + model.adapter).detach(), []
    for tokens, labels, reference in zip(
        BATCH["input_ids"].tolist(), BATCH["labels"].tolist(), references, strict=True
    ):
        chosen, rejected = (log_probability(table, tokens[each], labels[each]) - reference[each] for each in (0, 1))
        found.append(beta * (chosen - rejected))
    return found


@pytest.mark.parametrize("beta", [0.1, 2.0])
@pytest.mark.parametrize("given", [True, False], ids=["reference in the batch", "adapters switched off"])
def test_loss_and_metrics_are_those_of_the_formula(beta: float, given: bool):
    model = Table()
    references = [[-1.5, -0.25], [-3.0, -4.0]]
    batch = {**BATCH, "reference": bits_of(torch.tensor(references))} if given else BATCH
    if not given:
        lists = zip(BATCH["input_ids"].tolist(), BATCH["labels"].tolist(), strict=True)
        references = [[log_probability(model.table, x[each], y[each]) for each in (0, 1)] for x, y in lists]
    expected = margins(model, references, beta)
    loss, count = dpo_loss(beta)(model, batch)
    assert count == 2
    assert loss.item() == pytest.approx(sum(math.log1p(math.exp(-margin)) for margin in expected), rel=1e-5)
    metrics = dpo_metrics(beta)(model, batch)
    assert metrics["margin"][0].item() == pytest.approx(sum(expected), rel=1e-5)
    assert metrics["accuracy"][0].item() == sum(margin > 0 for margin in expected)


def test_the_reference_leaves_modes_and_flags_as_they_were():
    model = Table().train()
    with as_reference(model):
        assert not model.training
        assert not torch.is_grad_enabled()
    assert model.training
    assert [each.requires_grad for each in (model.table, model.adapter, model.fixed_adapter)] == [False, True, False]
