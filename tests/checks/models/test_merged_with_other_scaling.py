"""merged-with-other-scaling: the buggy and the fixed program, and what looks like it and is fine."""

import copy
import io

import pytest
import torch
from torch import nn

from tests.checks.models.adapted import Adapted, adapted, network
from tests.checks.programs import X, named, twin


def merging(factor):
    def merge(model):
        merged = copy.deepcopy(model).eval()
        with torch.no_grad():
            body = merged[0]
            body.layer.weight += factor * body.up @ body.down
            merged[0] = body.layer
            merged(X)

    return merge


@twin("merged-with-other-scaling")
def _(buggy):
    return adapted(network(factor=4.0), after=merging(1.0 if buggy else 4.0))


@pytest.mark.parametrize(("factor", "severity"), [(1.0, "error"), (8.0, "warning")])
def test_a_forgotten_factor_is_certain_and_another_one_may_be_meant(factor, severity):
    (found,) = adapted(network(factor=4.0), after=merging(factor)).findings
    assert found.severity == severity
    assert "times 4," in found.seen


def test_a_square_weight_fits_either_way_round():
    def merge(model):
        body = model[0]
        torch.save({"weight": (body.layer.weight + body.up @ body.down).detach()}, io.BytesIO())

    torch.manual_seed(0)
    body = Adapted(nn.Linear(4, 4), factor=3.0)
    body.layer.requires_grad_(False)
    assert named(adapted(nn.Sequential(body, nn.ReLU(), nn.Linear(4, 2)), after=merge)) == ["merged-with-other-scaling"]


def test_weights_in_a_file_and_weights_that_change_in_place(tmp_path):
    def in_file(model):
        body = model[0]
        torch.save({"0.weight": (body.layer.weight + body.up @ body.down).detach()}, tmp_path / "merged.pt")

    def in_place(model):
        with torch.no_grad():
            model[0].layer.weight += model[0].up @ model[0].down

    assert named(adapted(network(), after=in_file)) == ["merged-with-other-scaling"]
    assert named(adapted(network(), after=in_place)) == ["merged-with-other-scaling"]
