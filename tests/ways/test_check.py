"""check on whole recipes: sound ones give nothing, and each bug planted in a recipe's own parts is named."""

import dataclasses

import pytest
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.samples.programs import Changing


@pytest.mark.parametrize("name", ["regression", "sentiment", "fashion-convolutional", "gpt"])
def test_a_reference_recipe_is_sound(name: str, small_recipe):
    assert surefoot.check(small_recipe(name)).findings == ()


def test_of_the_deep_linear_network_nothing_is_said_but_that_it_is_linear(small_recipe):
    recipe = small_recipe("cruncher")
    assert [(each.check, each.severity) for each in surefoot.check(recipe).findings] == [
        ("linear-layers-in-a-row", "info")
    ]
    assert surefoot.check(recipe, allow=["linear-layers-in-a-row"]).findings == ()


def names(recipe) -> list[str]:
    return [finding.check for finding in surefoot.check(recipe).findings]


def test_a_data_set_that_reading_changes_is_named(small_recipe):
    recipe = dataclasses.replace(
        small_recipe("sentiment"),
        model=lambda: nn.Linear(4, 2),
        data=lambda: Changing(in_place=True),
        loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]),
    )
    assert names(recipe) == ["changing-samples"]
    assert names(dataclasses.replace(recipe, data=lambda: Changing(in_place=False))) == []


def test_a_loss_on_the_tokens_themselves_is_named(small_recipe):
    recipe = small_recipe("gpt")

    def copying(model, batch):
        return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[0].flatten())

    assert names(dataclasses.replace(recipe, loss=copying)) == ["targets-equal-inputs"]


def test_an_optimizer_of_a_part_is_named(small_recipe):
    import torch

    recipe = small_recipe("sentiment")

    def some(groups):
        return torch.optim.SGD(list(groups[0]["params"] if isinstance(groups[0], dict) else groups)[:1], lr=0.1)

    assert names(dataclasses.replace(recipe, optimizer=lambda groups: some(list(groups)))) == [
        "parameter-outside-optimizer"
    ]
