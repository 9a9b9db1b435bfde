"""best-weights-by-reference: the buggy and the fixed program, variants, and what looks like it and is fine."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

import surefoot
from tests.checks.programs import found_by, mlp, plain, sgd, twin
from tests.checks.saved_state.programs import adam, net, step, train

pytestmark = pytest.mark.sweep


@twin("best-weights-by-reference")
def _(buggy):
    model, best = mlp(), []

    def keep(step):
        if step == 1:
            state = model.state_dict()
            best.append(state if buggy else {name: each.clone() for name, each in state.items()})

    found = plain(model, after=keep)
    assert best
    return found


SHARED = {
    "state": lambda model: model.state_dict(),
    "shallow copy of a state": lambda model: copy.copy(model.state_dict()),
    "other dict": lambda model: {"epoch": 1, "weights": dict(model.state_dict().items())},
    "tensors on their own device": lambda model: {k: v.detach().cpu() for k, v in model.state_dict().items()},
    "views": lambda model: [p.data for p in model.parameters()],
    "detached": lambda model: {name: p.detach() for name, p in model.named_parameters()},
    "shallow copy of the model": copy.copy,
}


def kept(taken, then=lambda model, best: None) -> list[tuple[str, str]]:
    """What is said of weights that are taken after the first update and held until the third."""
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        step(model, optimizer)
        best = taken(model)
        step(model, optimizer)
        step(model, optimizer)
        then(model, best)
    return [(each.check, each.severity) for each in seen.findings.findings]


@pytest.mark.parametrize("how", SHARED)
def test_weights_that_share_memory_are_named_however_they_are_kept(how):
    assert kept(SHARED[how]) == [("best-weights-by-reference", "warning")]


OWN = {
    "deep copy of a state": lambda model: copy.deepcopy(model.state_dict()),
    "clones": lambda model: {k: v.clone() for k, v in model.state_dict().items()},
    "clones of views": lambda model: [p.data.clone() for p in model.parameters()],
    "deep copy of the model": copy.deepcopy,
    "parameters": lambda model: list(model.parameters()),
    "the last that a loop has looked at": lambda model: [v for v in model.state_dict().values() if v.shape][-1],
    "another dtype": lambda model: {k: v.double() for k, v in model.state_dict().items()},
}


@pytest.mark.parametrize("how", OWN)
def test_copies_may_be_kept(how):
    assert kept(OWN[how]) == []


def copy_back(model: nn.Module, best: list[torch.Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), best, strict=True):
            parameter.copy_(value)


@pytest.mark.parametrize(
    ("taken", "then"),
    [
        (SHARED["state"], lambda model, best: torch.save(best, io.BytesIO())),
        (lambda model: dict(model.named_parameters()), lambda model, best: model.load_state_dict(best)),
        (OWN["parameters"], copy_back),
    ],
)
def test_weights_that_are_used_as_if_they_were_a_copy_are_an_error(taken, then):
    assert kept(taken, then) == [("best-weights-by-reference", "error")]


@pytest.mark.parametrize(
    "use",
    [
        lambda state: torch.save(state, io.BytesIO()),
        lambda state: pickle.dump(state, io.BytesIO()),
        lambda state: print(sum(float(each.norm()) for each in state.values())),
    ],
)
def test_a_state_that_is_used_at_once_may_still_be_there(use):
    def taken(model):
        state = model.state_dict()
        use(state)
        return state

    assert kept(taken) == []


@pytest.mark.parametrize("copied", [False, True])
def test_the_best_model_by_another_name_is_named(copied):
    model = mlp()
    optimizer, best, best_model = sgd(model), 0.0, None
    with surefoot.watch(model, optimizer) as seen:
        for score in (0.5, 0.7, 0.6):
            step(model, optimizer)
            own = copy.deepcopy(model) if copied else model
            if score > best:
                best, best_model = score, own
    assert best_model is not None
    assert [each.check for each in seen.findings.findings] == ([] if copied else ["best-weights-by-reference"])


def test_the_best_of_several_models_may_be_kept():
    best, champion = 0.0, None
    with surefoot.watch() as seen:
        for score in (0.5, 0.7):
            model = mlp()
            optimizer = sgd(model)
            for _ in range(3):
                step(model, optimizer)
            if score > best:
                best, champion = score, model
    assert champion is not None
    assert [each.check for each in seen.findings.findings] == []


def test_weights_may_be_swapped_and_put_back():
    average = mlp()

    def swapped(model):
        own = [p.data for p in model.parameters()]
        for parameter, other in zip(model.parameters(), average.parameters(), strict=True):
            parameter.data = other.data
        for parameter, value in zip(model.parameters(), own, strict=True):
            parameter.data = value
        return own

    assert kept(swapped) == []


def parts_in_one_file(parts) -> list[str]:
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        step(model, optimizer)
        step(model, optimizer)
        torch.save(parts(model), io.BytesIO())
    return [each.check for each in seen.findings.findings]


def test_parts_of_a_model_that_go_into_one_file_are_not_kept_twice():
    def apart(model):
        body = {name: value for name, value in model.state_dict().items() if name.startswith("0.")}
        return {"body": body, "head": model[-1].state_dict()}

    def overlapping(model):
        biases = {name: value for name, value in model.state_dict().items() if name.endswith("bias")}
        return {"biases": biases, "head": model[-1].state_dict(), "all": model.state_dict()}

    assert parts_in_one_file(apart) == []
    assert parts_in_one_file(overlapping) == []
    twice = parts_in_one_file(lambda model: {"model": model.state_dict(), "best": model.state_dict()})
    assert twice == ["best-weights-by-reference"]


@pytest.mark.parametrize("copies", [True, False])
def test_best_weights_that_are_saved_beside_the_current_ones_are_their_own(copies):
    with surefoot.watch() as seen:
        model = net()
        optimizer = adam(model)
        for _ in range(2):
            train(model, optimizer, steps=2)
            best = copy.deepcopy(model.state_dict()) if copies else model.state_dict()
            torch.save({"model": model.state_dict(), "best": best, "optimizer": optimizer.state_dict()}, io.BytesIO())
    assert found_by(seen) == ([] if copies else ["best-weights-by-reference"])


def test_best_weights_that_are_saved_once_more_are_no_longer_the_best():
    with surefoot.watch() as seen:
        model = net()
        optimizer = adam(model)
        train(model, optimizer, steps=2)
        best = model.state_dict()
        torch.save(best, io.BytesIO())
        train(model, optimizer, steps=2)
        torch.save(best, io.BytesIO())
    assert found_by(seen) == ["best-weights-by-reference"]
