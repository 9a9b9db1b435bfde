"""optimizer-of-other-parameters: the buggy and the fixed program, variants, and what looks like it and is fine."""

import copy

import pytest
import torch
import torch.nn.functional as F

import surefoot
from surefoot.watch import watch_script
from tests.checks.programs import X, Y, looped, mlp, named, sgd, twin

pytestmark = pytest.mark.sweep


@twin("optimizer-of-other-parameters")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    model = copy.deepcopy(model) if buggy else model
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
    return seen.findings


def test_stacked_weights_with_gradients_of_a_transform_belong_to_the_loop():
    members = [mlp() for _ in range(3)]
    params, buffers = torch.func.stack_module_state(members)
    skeleton = copy.deepcopy(members[0]).to("meta")

    def loss(p, b, x, y):
        return F.cross_entropy(torch.func.functional_call(skeleton, (p, b), (x,)), y)

    with surefoot.watch() as seen:
        optimizer = torch.optim.SGD(params.values(), lr=0.1)
        for _ in range(3):
            gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(0, 0, None, None))(params, buffers, X, Y)
            for name, each in params.items():
                each.grad = gradients[name]
            optimizer.step()
    assert named(seen.findings) == []


@pytest.mark.parametrize("given", [True, False])
def test_an_optimizer_of_a_module_whose_values_are_given_as_a_dict(given):
    model = mlp()
    values = {name: each.detach().clone().requires_grad_() for name, each in model.named_parameters()}
    optimizer = torch.optim.SGD(values.values() if given else model.parameters(), lr=0.1)

    def body(model, optimizer):
        for each in values.values():
            each.grad = None
        F.cross_entropy(torch.func.functional_call(model, values, (X,)), Y).backward()
        optimizer.step()

    found = looped(body, model=model, optimizer=optimizer)
    assert ("optimizer-of-other-parameters" in found) is not given


@pytest.mark.parametrize("rebuilt", [True, False])
def test_an_optimizer_goes_with_a_model_that_is_replaced(rebuilt):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for number in range(8):
            if number == 3:
                model = copy.deepcopy(model)
                optimizer = sgd(model) if rebuilt else optimizer
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
    assert named(seen.findings) == ([] if rebuilt else ["optimizer-of-other-parameters"])


FOLDS = """
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(64, 4)
y = (x[:, 0] > 0).long()


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def new():
    model = network()
    return model, torch.optim.SGD(model.parameters(), lr=0.05)


model, optimizer = new()
for fold in range(3):
    if fold:
        {made}
    for _ in range(110):
        rows = torch.randint(0, 64, (8,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("made", "found"), [("model = network()", True), ("model, optimizer = new()", False)])
def test_a_model_that_is_made_anew_long_after_the_checks_stopped_looking(made, found, tmp_path):
    script = tmp_path / "folds.py"
    script.write_text(FOLDS.format(made=made))
    seen = watch_script(str(script)).findings
    assert [each.check for each in seen.findings] == (["optimizer-of-other-parameters"] if found else [])
