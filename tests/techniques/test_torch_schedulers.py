"""Schedulers of torch in a recipe: stepped once per update, told held-out losses, resumed to the same bits."""

import warnings
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import SWALR
from torch.utils.data import TensorDataset

import surefoot
from surefoot import Recipe
from surefoot.debug.runs.audit import audit
from surefoot.errors import RecipeError, RunError
from surefoot.techniques.schedule import warmup_cosine
from surefoot.training.lr_range import lr_range
from surefoot.training.overfit import overfit
from tests.own_steps import two
from tests.resumed import assert_same_bits

pytestmark = pytest.mark.sweep

STEPS = 12
SCHEDULERS = {
    "StepLR": lambda optimizer: lr_scheduler.StepLR(optimizer, 3),
    "MultiStepLR": lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [2, 5, 5]),
    "ConstantLR": lambda optimizer: lr_scheduler.ConstantLR(optimizer, 0.5, 4),
    "LinearLR": lambda optimizer: lr_scheduler.LinearLR(optimizer, total_iters=7),
    "ExponentialLR": lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.9),
    "PolynomialLR": lambda optimizer: lr_scheduler.PolynomialLR(optimizer, 9, 2.0),
    "CosineAnnealingLR": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
    "CosineAnnealingWarmRestarts": lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3, 2),
    "OneCycleLR": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, STEPS),
    "CyclicLR": lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, 3),
    "LambdaLR": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    "MultiplicativeLR": lambda optimizer: lr_scheduler.MultiplicativeLR(optimizer, lambda step: 0.95),
    "SWALR": lambda optimizer: SWALR(optimizer, 0.001, 5),
    "SequentialLR": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.LinearLR(optimizer, total_iters=4), lr_scheduler.MultiStepLR(optimizer, [2, 4])],
        milestones=[4],
    ),
    "ChainedScheduler": lambda optimizer: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(optimizer, total_iters=4), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    ),
    "partial": partial(lr_scheduler.StepLR, step_size=2, gamma=0.5),
    "named": lambda optimizer, gamma=0.9: lr_scheduler.ExponentialLR(optimizer, gamma),
    "class": lr_scheduler.ConstantLR,
    "ReduceLROnPlateau": lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, cooldown=1),
}


def points(seed: int, count: int = 24) -> TensorDataset:
    draws = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(count, 3, generator=draws), torch.randn(count, 1, generator=draws))


def recipe(follow, **changes) -> Recipe:
    """Two groups, each with a rate of its own; the held-out loss soon rises."""

    def optimizer(parameters):
        first, *others = parameters
        return torch.optim.SGD([{"params": [first], "lr": 0.2}, {"params": others}], lr=0.05, momentum=0.9)

    fields = {
        "model": lambda: nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1)),
        "data": lambda: points(1),
        "loss": lambda model, batch: nn.functional.mse_loss(model(batch[0]), batch[1]),
        "optimizer": optimizer,
        "schedule": follow,
        "micro_batch_size": 4,
        "max_steps": STEPS,
        "evaluation": lambda: points(2),
        "evaluate_every": 2,
        "save_every": 4,
    }
    return Recipe(**{**fields, **changes})


def rates_in_plain_torch(name: str) -> list[list[float]]:
    """The rates of each step, from torch alone."""
    parameters = list(recipe(None).model().parameters())
    optimizer = recipe(None).optimizer(parameters)
    scheduler, rates = SCHEDULERS[name](optimizer), []
    for _ in range(STEPS):
        rates.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    return rates


def watched(follow, **changes) -> tuple[Recipe, list[list[float]]]:
    """A recipe that notes the rates of all groups before each step, in its loss."""
    made, rates = [], []

    def optimizer(parameters):
        made.append(recipe(follow).optimizer(parameters))
        return made[-1]

    def loss(model, batch):
        if model.training:
            rates.append([group["lr"] for group in made[-1].param_groups])
        return recipe(follow).loss(model, batch)

    return recipe(follow, optimizer=optimizer, loss=loss, **changes), rates


@pytest.mark.parametrize("name", SCHEDULERS)
def test_stopped_and_resumed_it_has_the_same_bits(name, tmp_path):
    assert_same_bits(recipe(SCHEDULERS[name]), tmp_path, 3, 6, 9)


@pytest.mark.parametrize("name", sorted({*SCHEDULERS} - {"ReduceLROnPlateau"}))
def test_every_update_is_one_step_of_the_scheduler(name, tmp_path):
    made, rates = watched(SCHEDULERS[name])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = surefoot.train(made, path=str(tmp_path / "run"))
    assert rates == rates_in_plain_torch(name)
    assert [row.lr for row in run.rows()] == [each for each, _ in rates]


def test_groups_keep_the_ratio_of_their_rates(tmp_path):
    for number, follow in enumerate([None, warmup_cosine(warmup_steps=3), SCHEDULERS["ExponentialLR"]]):
        made, rates = watched(follow)
        surefoot.train(made, path=str(tmp_path / str(number)))
        assert len(rates) == STEPS
        assert [one / other for one, other in rates] == pytest.approx([4.0] * STEPS)


def test_a_plateau_is_told_each_held_out_loss(tmp_path):
    run = surefoot.train(recipe(SCHEDULERS["ReduceLROnPlateau"], max_steps=40), path=str(tmp_path / "run"))
    told, optimizer = [], recipe(None).optimizer(list(recipe(None).model().parameters()))
    scheduler = SCHEDULERS["ReduceLROnPlateau"](optimizer)
    for row in run.rows():
        told.append(optimizer.param_groups[0]["lr"])
        if row.evaluation_loss is not None:
            scheduler.step(row.evaluation_loss)
    assert [row.lr for row in run.rows()] == told
    assert told[-1] < told[0]


def test_an_audit_tells_it_the_losses_of_the_log(tmp_path):
    made = recipe(SCHEDULERS["ReduceLROnPlateau"], max_steps=40, save_every=10)
    surefoot.train(made, path=str(tmp_path / "run"))
    assert audit(made, str(tmp_path / "run")).differing == ()


def test_with_a_scheduler_of_torch_evaluations_may_not_change(tmp_path):
    made = recipe(SCHEDULERS["ReduceLROnPlateau"])
    surefoot.train(made, path=str(tmp_path / "run"))
    with pytest.raises(RunError, match="evaluate_every was 2 and is 3"):
        surefoot.train(recipe(SCHEDULERS["ReduceLROnPlateau"], evaluate_every=3), path=str(tmp_path / "run"))


def test_several_optimizers_get_one_each(tmp_path):
    seen = []

    def step(networks, optimizers, batch):
        seen.append([each.param_groups[0]["lr"] for each in optimizers.values()])
        return two().step(networks, optimizers, batch)

    follow = SCHEDULERS["ExponentialLR"]
    surefoot.train(two(step=step, schedule=follow), path=str(tmp_path / "run"))
    assert seen == [pytest.approx([0.1 * 0.9**number, 0.2 * 0.9**number]) for number in range(6)]


@pytest.mark.parametrize(
    "follow", [lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, 2), SCHEDULERS["ReduceLROnPlateau"]]
)
def test_all_other_ways_take_them_too(follow):
    made = recipe(follow, max_steps=2, evaluate_every=1)
    plan, profile = surefoot.plan(made), surefoot.profile(made, timed_steps=3)
    assert plan.steady.peak.peak_bytes == profile.steady.peak.peak_bytes
    assert plan.steady == surefoot.plan(recipe(None, max_steps=2)).steady
    assert [each.check for each in surefoot.check(made).findings] == []
    overfit(made, max_steps=20)
    lr_range(made)


class Odd(lr_scheduler.LRScheduler):
    """Its state holds an object that no checkpoint holds."""

    def __init__(self, optimizer) -> None:
        self.thing = object()
        super().__init__(optimizer)

    def get_lr(self):
        return self.base_lrs


@pytest.mark.parametrize(
    ("follow", "changes", "said"),
    [
        (lambda: 1.0, {}, r"schedule must take two things, schedule\(step, steps\), or one, schedule\(optimizer\)"),
        (lambda step: 0.5, {}, r"schedule\(optimizer\) returned a float; expected .*takes two things"),
        (
            lambda step, steps: SCHEDULERS["StepLR"](torch.optim.SGD([torch.ones(1)])),
            {},
            "take one thing: the optimizer",
        ),
        (
            lambda optimizer: lr_scheduler.StepLR(torch.optim.SGD([torch.ones(1)]), 1),
            {},
            "returned a StepLR of another optimizer",
        ),
        (lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, 5), {}, "OneCycleLR cannot take update 6 of 12"),
        (SCHEDULERS["ReduceLROnPlateau"], {"evaluate_every": None}, "set loss, evaluation and evaluate_every"),
        (lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, "max"), {}, "needs mode='min'"),
        (Odd, {}, "the schedule cannot be saved: .*thing.* is a builtins.object"),
    ],
)
def test_what_a_schedule_may_not_be(follow, changes, said, tmp_path):
    with pytest.raises(RecipeError, match=said):
        surefoot.train(recipe(follow, **changes), path=str(tmp_path / "run"))
