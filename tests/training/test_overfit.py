"""overfit: every reference recipe learns one batch by heart; what is wired wrongly does not, and the cause is named."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from surefoot import Recipe
from surefoot.errors import RecipeError
from surefoot.records.codec import from_json, to_json
from surefoot.records.overfit import Overfit
from surefoot.training.overfit import overfit
from tests.conftest import SMALL

pytestmark = pytest.mark.sweep

CLASSES = 4


def images(samples: int = 64) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(
        torch.randn(samples, 16, generator=generator), torch.randint(0, CLASSES, (samples,), generator=generator)
    )


class Network(nn.Module):
    """A trunk and a head; `cut` goes between them."""

    def __init__(self, cut=lambda x: x, drop: float = 0.0) -> None:
        super().__init__()
        self.trunk, self.cut, self.dropout = nn.Linear(16, 64), cut, nn.Dropout(drop)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x):
        return self.head(self.dropout(self.cut(self.trunk(x).relu())))


def class_loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


def network(**changes) -> Recipe:
    return Recipe(
        **{
            "model": Network,
            "data": images,
            "loss": class_loss,
            "optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
            "micro_batch_size": 32,
            "max_steps": 10,
            **changes,
        }
    )


def names(record: Overfit) -> list[str]:
    return [finding.check for finding in record.findings.findings]


@pytest.mark.sweep
@pytest.mark.parametrize("name", SMALL)
def test_the_reference_recipes_learn_a_batch_by_heart(name: str, small_recipe):
    record = overfit(small_recipe(name))
    assert record.verdict == "learned"
    assert names(record) == []
    learned = record.attempts[-1]
    assert learned.losses[-1] <= 0.01 * learned.losses[0] == pytest.approx(record.target_loss)
    assert from_json(Overfit, to_json(record)) == record


@pytest.mark.sweep
@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "bf16-true"])
def test_every_precision_learns_a_batch_by_heart(precision: str, small_recipe):
    assert overfit(small_recipe("gpt", f"precision={precision}")).verdict == "learned"


def test_what_works_against_learning_is_switched_off():
    seen = []

    def optimizer(parameters):
        seen.append(torch.optim.AdamW(parameters, lr=1e-2, weight_decay=10.0))
        return seen[-1]

    against = network(
        model=lambda: Network(drop=0.9),
        schedule=lambda step, steps: 1e-6,  # an endless warm-up
        optimizer=optimizer,
        global_batch_tokens=128,
    )
    record = overfit(against)
    assert (record.verdict, len(record.attempts)) == ("learned", 1)
    assert {group["weight_decay"] for made in seen for group in made.param_groups} == {0.0}
    assert set(record.switched_off) == {"schedule", "weight decay", "dropout", "accumulation"}


def test_dropout_that_is_only_a_number_is_switched_off_too():
    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attend = nn.MultiheadAttention(16, 2, dropout=0.8, batch_first=True)
            self.remember = nn.LSTM(16, 16, num_layers=2, dropout=0.8, batch_first=True)
            self.head = nn.Linear(16, CLASSES)

        def forward(self, x):
            x = x.unsqueeze(1).expand(-1, 3, -1)
            return self.head(self.remember(x + self.attend(x, x, x)[0])[0].mean(1))

    assert not overfit(network(model=Attends)).wiring.random


@pytest.mark.sweep
@pytest.mark.parametrize("lr", [1e-5, 1e-4, 1e-3, 1e-1, 1e1, 1e2])
def test_a_learning_rate_too_small_or_too_large_is_no_wiring_bug(lr: float):
    record = overfit(network(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9)))
    assert (record.verdict, names(record)) == ("learned", [])
    assert len(record.attempts) == 1 or lr != 1e-1


@pytest.mark.parametrize("cut", [torch.Tensor.detach, lambda x: x.detach() + 0 * x])
def test_a_detached_trunk_is_named_even_where_the_head_alone_learns_the_batch(cut):
    fast = network(
        model=lambda: Network(cut),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
    )
    record = overfit(fast)
    assert record.verdict == "learned"  # 64 random features are enough for 32 samples
    assert names(record) == ["detached-parameter"]
    assert record.wiring.detached == ("trunk.weight", "trunk.bias")
    assert record.findings.errors


def test_a_loss_without_a_graph_is_a_finding_and_no_traceback():
    record = overfit(network(loss=lambda model, batch: class_loss(model, batch).detach()))
    assert record.verdict == "not learned"
    assert names(record) == ["detached-parameter"]
    assert len(record.wiring.detached) == 4


def test_labels_shuffled_at_every_call_are_named():
    def shuffled(model, batch):
        return class_loss(model, (batch[0], batch[1][torch.randperm(len(batch[1]))]))

    record = overfit(network(loss=shuffled))
    assert (record.verdict, names(record)) == ("not learned", ["random-loss"])


def test_an_optimizer_of_other_parameters_is_named():
    record = overfit(network(optimizer=lambda parameters: torch.optim.AdamW(Network().parameters(), lr=1e-2)))
    assert (record.verdict, names(record)) == ("not learned", ["parameter-outside-optimizer"])
    assert len(record.wiring.outside) == 4


@pytest.mark.parametrize(
    "loss",
    [
        lambda model, batch: class_loss(model, (torch.zeros_like(batch[0]), batch[1])),  # the input never arrives
        lambda model, batch: F.cross_entropy(model(batch[0]).softmax(-1), batch[1]),  # a softmax too many
    ],
)
def test_a_batch_that_cannot_be_learned_at_any_rate_is_reported(loss):
    record = overfit(network(loss=loss), max_steps=60)
    assert {1e-2, 1e-1, 1e-3} <= {round(attempt.lr, 9) for attempt in record.attempts}
    assert (record.verdict, names(record)) == ("not learned", ["batch-not-learned"])


def test_a_loss_that_is_not_finite_is_reported_and_survives_json():
    record = overfit(network(loss=lambda model, batch: class_loss(model, batch) * float("inf")))
    assert {attempt.outcome for attempt in record.attempts} == {"diverged"}
    assert names(record) == ["batch-not-learned"]
    assert "not finite" in record.findings.findings[0].seen
    assert from_json(Overfit, to_json(record)) == record


def test_frozen_and_unused_parameters_are_no_findings():
    class Partly(Network):
        def __init__(self) -> None:
            super().__init__()
            self.trunk.requires_grad_(False)
            self.unused = nn.Linear(4, 4)
            self.pooler = nn.Linear(64, 4)

        def forward(self, x):
            self.pooler(self.trunk(x))  # runs, and nobody looks at it
            return super().forward(x)

    record = overfit(network(model=Partly))
    assert (record.verdict, names(record)) == ("learned", [])


def test_a_floor_under_the_loss_is_told_by_a_target():
    def smoothed(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1], label_smoothing=0.2)

    assert names(overfit(network(loss=smoothed), max_steps=60)) == ["batch-not-learned"]
    assert overfit(network(loss=smoothed), target_loss=0.65).verdict == "learned"


def test_a_loss_below_zero_wants_a_target():
    recipe = network(loss=lambda model, batch: class_loss(model, batch) - 10)
    with pytest.raises(RecipeError, match="--target-loss"):
        overfit(recipe)
    assert overfit(recipe, target_loss=-9.9).verdict == "learned"


def test_an_allowed_check_is_silent_and_an_unknown_one_is_refused():
    recipe = network(model=lambda: Network(torch.Tensor.detach))
    assert names(overfit(recipe, allow=["detached-parameter"])) == []
    stuck = dataclasses.replace(recipe, loss=lambda model, batch: class_loss(model, (0 * batch[0], batch[1])))
    assert names(overfit(stuck, allow=["detached-parameter"], max_steps=20)) == ["batch-not-learned"]
    with pytest.raises(RecipeError, match="no check of --overfit is called 'nothing'; known: detached-parameter"):
        overfit(recipe, allow=["nothing"])


def test_the_batch_is_cut_to_a_thousand_tokens():
    long = dataclasses.replace(network(), tokens_per_sample=512, global_batch_tokens=None)
    assert overfit(long).samples == 2
    assert overfit(network()).samples == 32
