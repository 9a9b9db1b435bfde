"""A state comes back as it was: every bit, every type."""

import math
import struct
from collections import Counter, OrderedDict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surefoot.checkpoint.outline import Saved, from_json, take_apart, to_json
from surefoot.errors import CheckpointError
from tests.checkpoint.states import same

NUMBERS = st.floats(width=64) | st.integers() | st.booleans()
SCALARS = st.none() | NUMBERS | st.text() | st.sampled_from([torch.float32, torch.bfloat16, torch.int64])
NUMPY = st.floats(width=32).map(np.float32) | st.floats().map(np.float64) | st.integers(0, 255).map(np.uint8)
KEYS = st.text() | st.integers() | st.tuples(st.text(), st.integers())
STATES = st.recursive(
    SCALARS | NUMPY,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(st.text(), inner, max_size=4).map(OrderedDict)
        | st.dictionaries(st.integers(), st.integers(), max_size=4).map(Counter)
    ),
)


@given(STATES)
def test_what_is_not_a_tensor_comes_back_to_the_last_bit(state):
    outline, tensors = take_apart(state)
    assert not tensors
    assert same(from_json(to_json(outline)), state)


def test_a_nan_keeps_its_payload():
    [nan] = struct.unpack(">d", bytes.fromhex("7ff8dead0000beef"))
    [back] = struct.unpack(">Q", struct.pack(">d", from_json(to_json(nan))))
    assert math.isnan(nan)
    assert back == 0x7FF8DEAD0000BEEF


def test_one_tensor_under_two_names_is_kept_once():
    weight = torch.zeros(3)
    outline, tensors = take_apart({"embedding": weight, "head": weight.detach(), "half": weight[:2]})
    assert list(tensors) == ["embedding", "half"]
    assert outline["head"].name == outline["embedding"].name == "embedding"


def test_names_that_meet_are_told_apart():
    outline, tensors = take_apart({"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}, "empty": [torch.empty(0)] * 2})
    assert list(tensors) == ["a.b", "a.b~2", "empty.0", "empty.1"]
    assert outline["a"]["b"].name == "a.b~2"


def test_a_tensor_keeps_the_order_of_its_dimensions():
    tensor = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    outline, _ = take_apart({"x": tensor, "slice": torch.zeros(4, 4)[:, :2]})
    assert outline["x"] == Saved("x", torch.float32, (2, 3, 4, 5), tensor.stride(), "cpu")
    assert outline["slice"].empty().stride() == (2, 1)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (object(), r"state\['deep'\]\[0\] is a builtins.object; a checkpoint holds tensors"),
        ({1, 2}, "is a builtins.set"),
        (np.zeros(2), "is a numpy.ndarray"),
        (b"bytes", "is a builtins.bytes"),
        (torch.eye(2).to_sparse(), "torch.sparse_coo tensor; a checkpoint holds only dense"),
        (torch.empty(1, device="meta"), "on the meta device"),
    ],
)
def test_what_cannot_be_saved_is_named(value, reason):
    with pytest.raises(CheckpointError, match=reason):
        to_json(take_apart({"deep": [value]})[0])
