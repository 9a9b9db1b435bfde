"""Something of another kind than a recipe's function should return is named, alike in every way."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import surefoot
from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe

DATA = TensorDataset(torch.randn(8, 2))
RECIPE = Recipe(
    model=lambda: nn.Linear(2, 1),
    data=lambda: DATA,
    loss=lambda model, batch: model(batch[0]).square().mean(),
    optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    micro_batch_size=2,
    max_steps=1,
    name="mine",
)
WAYS = {
    "plan": lambda recipe, folder: surefoot.plan(recipe),
    "check": lambda recipe, folder: surefoot.check(recipe),
    "train": lambda recipe, folder: surefoot.train(recipe, path=str(folder / "run")),
    "profile": lambda recipe, folder: surefoot.profile(recipe, timed_steps=1),
}


class Unsized(Dataset):
    def __getitem__(self, index):
        return torch.zeros(2)


class Nothing(IterableDataset):
    def __iter__(self):
        return iter(())


class Sharpness(torch.optim.SGD):
    """Like SAM: a step up the slope, the loss again, and a step down."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1)

    def first_step(self): ...

    def second_step(self): ...

    def step(self, closure=None):
        assert closure is not None, "requires a closure"


def frozen() -> nn.Module:
    return nn.Linear(2, 1).requires_grad_(False)


ONE = iter([1])


def whole_batch():
    return torch.zeros(2, 2)


def whole(model, batch):
    return torch.ones((), dtype=torch.long)


WRONG = {
    "a list of models": (
        {"model": lambda: [nn.Linear(2, 1)]},
        "mine: model() returned a list of 1; expected a torch",
    ),
    "no model": ({"model": lambda: None}, "mine: model() returned None; is a `return` missing?"),
    "a class": ({"model": lambda: nn.Linear}, "mine: model() returned the class Linear"),
    "no parameters": ({"model": lambda: nn.ReLU()}, "mine: model() returned a ReLU without parameters"),
    "frozen": ({"model": frozen}, "all 2 of its parameters are frozen"),
    "an empty data set": ({"data": lambda: TensorDataset(torch.zeros(0, 2))}, "the data set is empty"),
    "an empty stream": ({"data": Nothing}, "the data set is empty"),
    "no length": ({"data": Unsized}, "mine: data() returned an Unsized, which has no `__len__`"),
    "a loader": (
        {"data": lambda: DataLoader(DATA)},
        "or an object with that method. Return its `.dataset`: surefoot makes the batches",
    ),
    "a dict of data": ({"data": lambda: {"train": DATA}}, "mine: data() returned a dict of 1; expected a data set"),
    "one iterator": ({"data": lambda: ONE}, "mine: data() returned the same iterator twice, and an iterator cannot"),
    "a function of nothing": ({"data": lambda: whole_batch}, "mine: data() must take (number, size), the micro-batch"),
    "a set of data": ({"data": lambda: {1, 2}}, "mine: data() returned a set; expected a data set"),
    "a class of data": ({"data": lambda: Nothing}, "mine: data() returned the class Nothing; expected a data set"),
    "no data": ({"data": lambda: None}, "mine: data() returned None"),
    "a float": (
        {"loss": lambda model, batch: 0.5},
        "mine: loss(model, batch) returned a float; expected a tensor of",
    ),
    "a vector": (
        {"loss": lambda model, batch: model(batch[0])},
        "returned a tensor of shape [2, 1] and float32; it must",
    ),
    "whole numbers": ({"loss": whole}, "returned a tensor of shape [] and int64; it must be one floating-point number"),
    "no loss": ({"loss": lambda model, batch: None}, "mine: loss(model, batch) returned None"),
    "three things": ({"loss": lambda model, batch: (1, 2, 3)}, "mine: loss(model, batch) returned a tuple of 3"),
    "a count of many": (
        {"loss": lambda model, batch: (model(batch[0]).sum(), torch.ones(3))},
        "returned a count of shape [3]",
    ),
    "two optimizers": (
        {"optimizer": lambda ps: [torch.optim.SGD(ps, lr=0.1)] * 2},
        "mine: optimizer(parameters) returned a list of 2; expected one torch.optim.Optimizer; for several settings",
    ),
    "no optimizer": ({"optimizer": lambda ps: None}, "mine: optimizer(parameters) returned None"),
    "an optimizer's class": ({"optimizer": lambda ps: torch.optim.SGD}, "returned the class SGD; call it"),
    "a closure": (
        {"optimizer": lambda ps: torch.optim.LBFGS(list(ps))},
        "mine: LBFGS computes the loss several times in one update, through a closure",
    ),
    "two steps": (
        {"optimizer": Sharpness},
        "use another optimizer, or write the update yourself (step=)",
    ),
    "a word for a rate": (
        {"schedule": lambda step, steps: "half"},
        "schedule(0, ...) returned a str; expected a num",
    ),
    "a rate of NaN": ({"schedule": lambda step, steps: float("nan")}, "returned nan; the factor of the learning rate"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("change", "said"), WRONG.values(), ids=WRONG)
def test_what_is_of_the_wrong_kind_is_named(tmp_path, way, change, said):
    with pytest.raises(RecipeError) as caught:
        WAYS[way](replace(RECIPE, **change), tmp_path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_right_is_taken(tmp_path, way):
    """A list is a data set; a loss may be a sum and a count; a factor may be a tensor."""
    right = replace(
        RECIPE,
        data=lambda: [torch.zeros(2), torch.ones(2)],
        loss=lambda model, batch: (model(batch).sum(), torch.tensor(2)),
        schedule=lambda step, steps: torch.tensor(0.5),
    )
    WAYS[way](right, tmp_path)


def test_the_same_holds_for_evaluation(tmp_path):
    wrong = replace(RECIPE, evaluation=lambda: None, evaluate_every=1)
    with pytest.raises(RecipeError, match=r"mine: evaluation\(\) returned None"):
        surefoot.train(wrong, path=str(tmp_path / "run"))
