"""What is put back of a checkpoint, and what is missing in a file, in forms that differ from the twins."""

import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.twins import X, Y


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-2)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    F.cross_entropy(model(X), Y).backward()
    optimizer.step()


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def resumed(restore) -> list[str]:
    """What is said of a run that goes on from a file, with the optimizer that `restore` returns."""
    model = net()
    optimizer = adam(model)
    step(model, optimizer)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizers": [optimizer.state_dict()], "step": 1}, file)
    file.seek(0)
    with surefoot.watch(model) as seen:
        kept = torch.load(file)
        model.load_state_dict(kept["model"])
        going_on = restore(model, adam(model), kept["optimizers"][0])
        for _ in range(3):
            step(model, going_on)
    return [each.check for each in seen.findings.findings]


def put_back(model, optimizer, state):
    optimizer.load_state_dict(state)
    return optimizer


def put_into_another(model, optimizer, state):
    adam(model).load_state_dict(state)
    return optimizer


def made_anew(model, optimizer, state):
    optimizer.load_state_dict(state)
    return adam(model)


@pytest.mark.parametrize("restore", [put_into_another, made_anew])
def test_an_optimizer_that_goes_on_without_the_state_is_named_though_another_was_given_it(restore):
    assert resumed(restore) == ["unrestored-optimizer"]


def test_an_optimizer_that_was_given_its_state_may_go_on():
    assert resumed(put_back) == []


def saved(content) -> list[str]:
    model = net()
    optimizer = adam(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            step(model, optimizer)
        torch.save(content(model, optimizer), io.BytesIO())
    return [each.check for each in seen.findings.findings]


def test_a_file_with_all_parameters_and_no_running_statistics_is_named():
    assert saved(lambda model, _: {n: p.detach() for n, p in model.named_parameters()}) == ["state-lost-on-reload"]
    assert saved(lambda model, _: {n: p.detach() for n, p in model[0].named_parameters()}) == []
    assert saved(lambda model, _: model.state_dict()) == []


def test_states_of_optimizers_may_stand_in_a_list():
    def whole(model, optimizer):
        return {"state_dict": model.state_dict(), "optimizer_states": [optimizer.state_dict()], "epoch": 1}

    assert saved(whole) == []
    bare = saved(lambda model, _: {"state_dict": model.state_dict(), "optimizer_states": [], "epoch": 1})
    assert bare == ["checkpoint-without-optimizer"]
