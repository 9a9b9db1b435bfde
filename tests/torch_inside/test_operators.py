"""Private operators are found by name; one that this torch lacks is equal to no operator."""

import pytest
import torch

from surefoot.torch_inside.operators import Absent, private, schema_of, waits


def test_an_operator_is_found_by_name():
    assert private("_softmax") is torch.ops.aten._softmax
    assert not isinstance(private("_scaled_dot_product_flash_attention_for_cpu"), Absent)


def test_one_that_is_missing_can_stand_in_tables():
    missing = private("_no_such_operator")
    table = {missing: 1, missing.default: 2}
    assert torch.ops.aten.add not in table
    assert table[missing] == 1
    with pytest.raises(NotImplementedError, match=r"has no operator aten\._no_such_operator"):
        missing(torch.ones(1))


def test_schemas_tell_what_is_written():
    assert schema_of(torch.ops.aten.add_.Tensor).is_mutable
    assert not schema_of(torch.ops.aten.add.Tensor).is_mutable


def test_the_wait_for_a_collective_is_known():
    assert not waits(torch.ops.aten.add.Tensor)
    assert waits(torch.ops._c10d_functional.wait_tensor.default)
