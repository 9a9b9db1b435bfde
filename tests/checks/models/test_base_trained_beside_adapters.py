"""base-trained-beside-adapters: the buggy and the fixed program, and what looks like it and is fine."""

import pytest
import torch
from torch import nn

import surefoot
from tests.checks.models.adapted import adapted, network
from tests.checks.programs import X, Y, named, twin


@twin("base-trained-beside-adapters")
def _(buggy):
    model = network()
    model[0].layer.weight.requires_grad_(buggy)
    return adapted(model)


def test_a_base_that_the_optimizer_holds_frozen_does_not_move():
    model = network()
    assert named(adapted(model, parameters=list(model.parameters()))) == []


@pytest.mark.parametrize("buggy", [False, True])
def test_peft_adapters_are_known(buggy):
    import peft

    body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    model = peft.get_peft_model(body, peft.LoraConfig(r=2, target_modules=["0"]))
    model.base_model.model[0].base_layer.requires_grad_(buggy)
    assert named(adapted(model)) == (["base-trained-beside-adapters"] if buggy else [])


class Late(nn.Module):
    """A layer that gets its adapter later."""

    def __init__(self):
        super().__init__()
        self.layer, self.tail, self.down = nn.Linear(4, 8), nn.Linear(8, 2), None

    def adapt(self):
        self.down, self.up = nn.Parameter(0.5 * torch.randn(2, 4)), nn.Parameter(torch.zeros(8, 2))

    def forward(self, x):
        out = self.layer(x)
        return self.tail((out if self.down is None else out + x @ self.down.t() @ self.up.t()).relu())


@pytest.mark.parametrize("frozen", [True, False])
def test_a_base_that_was_trained_before_its_adapters_and_into_which_they_are_merged(frozen):
    torch.manual_seed(0)
    model = Late()

    def steps():
        optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], 1e-2)
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(X), Y).backward()
            optimizer.step()

    with surefoot.watch() as seen:
        steps()
        model.adapt()
        model.layer.requires_grad_(not frozen)
        steps()
        with torch.no_grad():
            model.layer.weight += model.up @ model.down
            model.up.zero_()
        model(X)
    assert ("base-trained-beside-adapters" in named(seen.findings)) != frozen
