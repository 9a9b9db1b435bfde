"""layers-in-plain-list: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
from torch import nn

from tests.checks.programs import named, plain, twin, two_layers


class Listed(nn.Module):
    def __init__(self, container=list):
        super().__init__()
        torch.manual_seed(0)
        layers = [nn.Linear(4, 4) for _ in range(2)]
        self.layers = {"a": layers[0], "b": layers[1]} if container is dict else container(layers)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        for layer in self.layers.values() if isinstance(self.layers, dict) else self.layers:
            x = layer(x).relu()
        return self.head(x)


@twin("layers-in-plain-list")
def _(buggy):
    return plain(Listed(list if buggy else nn.ModuleList))


class Holder:
    """A plain object that keeps a layer."""

    def __init__(self):
        self.layer = nn.Linear(8, 8)


@pytest.mark.sweep
def test_a_layer_that_runs_in_a_model_that_does_not_hold_it():
    held = two_layers(lambda self, h: self.middle(h).relu(), middle=lambda: nn.Linear(8, 8))
    assert named(plain(held)) == []
    hidden = two_layers(lambda self, h: self.holder.layer(h).relu())
    hidden.holder = Holder()
    assert named(plain(hidden)) == ["layers-in-plain-list"]
    nested = two_layers(lambda self, h: self.parts["a"][0](h).relu())
    nested.parts = {"a": [nn.Linear(8, 8)]}
    assert named(plain(nested)) == ["layers-in-plain-list"]


@pytest.mark.parametrize("container", [tuple, dict])
def test_other_plain_containers_are_seen_too(container):
    finding = plain(Listed(container)).findings[0]
    assert finding.check == "layers-in-plain-list"
    assert finding.where == "layers"


def test_unregistered_layers_that_an_optimizer_does_train_are_a_warning():
    model = Listed()
    everything = [*model.parameters(), *(p for layer in model.layers for p in layer.parameters())]
    findings = plain(model, optimizer=torch.optim.SGD(everything, lr=0.1))
    assert [(finding.check, finding.severity) for finding in findings.findings] == [("layers-in-plain-list", "warning")]
