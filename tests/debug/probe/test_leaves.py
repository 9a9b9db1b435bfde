"""Leaves of batches of any form: found by path, changed, and the rest left as it was."""

from collections import UserDict

import pytest
import torch

from surefoot.debug.probe.changes import changed_batches
from surefoot.debug.probe.leaves import altered, as_batch, as_call, leaves, samples_in
from surefoot.debug.probe.order import Change, Roles
from surefoot.debug.probe.results import name_of

X, Y = torch.arange(12.0).reshape(6, 2), torch.arange(6)
BATCHES = {
    "pair": ((X, Y), {"[0]", "[1]"}),
    "list of two": ([X, Y], {"[0]", "[1]"}),
    "dict": ({"x": X, "y": Y, "name": "six"}, {"['x']", "['y']"}),
    "like a dict": (UserDict(x=X, y=Y), {"['x']", "['y']"}),
    "alone": (X, {""}),
    "samples": (
        (tuple(X), tuple({"boxes": each[None], "labels": each} for each in Y)),
        {"[0][*]", "[1][*]['boxes']", "[1][*]['labels']"},
    ),
    "two views": (([X, X + 1], Y), {"[0][0]", "[0][1]", "[1]"}),
}


@pytest.mark.parametrize("name", BATCHES)
def test_leaves_have_paths(name):
    batch, paths = BATCHES[name]
    assert set(leaves(batch)) == paths
    assert samples_in(batch) == 6


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_keeps_its_form(name):
    batch, _ = BATCHES[name]
    made = altered(batch, lambda path, leaf: leaf)
    assert type(made) is type(batch)
    assert made is not batch or isinstance(batch, torch.Tensor)
    assert str(made) == str(batch)


def test_a_call_is_a_batch():
    batch = as_batch((X, Y), {"labels": Y})
    assert set(leaves(batch)) == {"[0]", "[1]", "['labels']"}
    args, kwargs = as_call(batch)
    assert args == (X, Y) or len(args) == 2
    assert set(kwargs) == {"labels"}


def test_targets_are_permuted_across_batches():
    batches = [(X, torch.zeros(6)), (X, torch.ones(6))]  # each batch holds one class only
    made, count = changed_batches(batches, Change("targets"), {"[0]": "input", "[1]": "target"})
    assert count == 2
    assert torch.cat([each[1] for each in made]).sum() == 6
    assert all(torch.equal(each[0], X) for each in made)
    assert batches[0][1].sum() == 0


def test_targets_of_many_forms_are_permuted_within_their_batch():
    batches = [(X, torch.arange(12).reshape(6, 2)), (X, torch.arange(18).reshape(6, 3))]
    made, count = changed_batches(batches, Change("targets"), {"[1]": "target"})
    assert count == 2
    assert [sorted(each[1].flatten().tolist()) for each in made] == [list(range(12)), list(range(18))]


def test_samples_in_lists_are_permuted_as_wholes():
    batch = BATCHES["samples"][0]
    roles = {"[0][*]": "input", "[1][*]['boxes']": "target", "[1][*]['labels']": "target"}
    made, count = changed_batches([batch], Change("targets"), roles)
    assert count == 1
    assert all(torch.equal(each["boxes"][0], each["labels"]) for each in made[0][1])


def test_a_part_is_shuffled_and_the_rest_stays():
    change = Change("part", path="[0]", dim=1, first=1, last=2)
    made, count = changed_batches([(X, Y)], change, {})
    assert count == 1
    assert torch.equal(made[0][0][:, 0], X[:, 0])
    assert not torch.equal(made[0][0][:, 1], X[:, 1])


def test_a_part_that_is_alike_in_all_samples_counts_as_unchanged():
    change = Change("part", path="[0]", dim=1, first=0, last=1)
    assert changed_batches([(torch.ones(6, 2), Y)], change, {})[1] == 0


def test_one_sample_is_disturbed_in_the_first_batch():
    made, count = changed_batches([(X, Y), (X, Y)], Change("sample"), {"[0]": "input", "[1]": "target"})
    assert count == 1
    assert torch.equal(made[0][0][0], X[1])
    assert torch.equal(made[0][0][1:], X[1:])
    assert torch.equal(made[1][0], X)


def test_leaves_have_names_for_people():
    roles = Roles()
    assert name_of("['labels']", roles, "loader") == "`labels`"
    assert name_of("[1]", roles, "loader") == "item 1 of the batch"
    assert name_of("[0]", roles, "call") == "argument 0 of the call"
    assert name_of("[1][*]['boxes']", roles, "loader") == "`boxes`"
