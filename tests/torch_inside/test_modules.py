"""Modules and tensors keep their parts and hooks in tables that can be read and changed."""

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from surefoot.torch_inside.modules import (
    TABLES,
    buffers_of,
    children_of,
    forget_forward_hook,
    hooks_of,
    parameters_of,
    save_own_tensors,
    unsaved_buffers,
)


def test_tables_hold_what_public_iterators_leave_out():
    layer = nn.Linear(2, 2, bias=False)
    twice = nn.Sequential(layer, layer)
    assert list(children_of(twice).values()) == [layer, layer]
    assert list(parameters_of(layer)) == ["weight", "bias"]
    assert parameters_of(layer)["bias"] is None
    norm = nn.BatchNorm1d(2)
    assert list(buffers_of(norm)) == ["running_mean", "running_var", "num_batches_tracked"]
    assert set(TABLES) <= set(vars(norm))


def test_a_changed_table_changes_the_model():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))
    del children_of(model)["1"]
    assert model(torch.ones(1, 2)).shape == (1, 3)


def test_buffers_that_are_not_saved_are_known():
    module = nn.Module()
    module.register_buffer("kept", torch.ones(1))
    module.register_buffer("left", torch.ones(1), persistent=False)
    assert unsaved_buffers(module) == {"left"}
    state = {}
    save_own_tensors(module, state, "inner.", False)
    assert list(state) == ["inner.kept"]


def test_hooks_of_a_tensor_are_counted():
    weight = nn.Parameter(torch.ones(2))
    assert hooks_of(weight) == 0
    weight.register_hook(lambda gradient: None)
    weight.register_post_accumulate_grad_hook(lambda parameter: None)
    assert hooks_of(weight) == 2


def test_a_global_hook_leaves_nothing_behind():
    from torch.nn.modules import module

    before = dict(module._global_forward_hooks_with_kwargs)
    handle = register_module_forward_hook(lambda *_: None, with_kwargs=True)
    handle.remove()
    forget_forward_hook(handle.id)
    assert dict(module._global_forward_hooks_with_kwargs) == before
