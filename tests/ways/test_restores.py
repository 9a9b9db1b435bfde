"""Every way leaves torch as it found it: hooks, modes, random generators, default dtype, train mode."""

import gc
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import surefoot
from surefoot.training.lr_range import lr_range
from surefoot.training.overfit import overfit


def state():
    """Everything global that a way could touch."""
    return {
        "rng": torch.get_rng_state().tolist(),
        "python rng": random.getstate(),
        "numpy rng": np.random.get_state()[1].tolist(),
        "modes": list(_get_current_dispatch_mode_stack()),
        "hooks": [
            dict(registry)
            for registry in (
                modules._global_forward_hooks,
                modules._global_forward_pre_hooks,
                modules._global_backward_hooks,
                optimizers._global_optimizer_pre_hooks,
                optimizers._global_optimizer_post_hooks,
            )
        ],
        "backward": torch.autograd.backward,
        "random state": torch.get_rng_state,
        "linear": nn.functional.linear,
        "dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "processes": torch.distributed.is_initialized(),
        "threads": torch.get_num_threads(),
        "collector": gc.get_threshold(),
        "lists": optimizers._foreach_supported_types.count(FakeTensor),
        "devices with lists": optimizers._get_foreach_kernels_supported_devices,
        "operators": [
            torch._C._dispatch_dump(f"aten::{name}") for name in ("dropout", "layer_norm", "cross_entropy_loss", "cat")
        ],
    }


def export(recipe, tmp_path):
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    surefoot.export(run.path)


WAYS = {
    "plan": lambda recipe, tmp_path: surefoot.plan(recipe),
    "plan on a GPU": lambda recipe, tmp_path: surefoot.plan(recipe, on="h100-sxm"),
    "check": lambda recipe, tmp_path: surefoot.check(recipe),
    "train": lambda recipe, tmp_path: surefoot.train(recipe, path=str(tmp_path / "run")),
    "profile": lambda recipe, tmp_path: surefoot.profile(recipe, timed_steps=1),
    "export": export,
    "overfit": lambda recipe, tmp_path: overfit(recipe, max_steps=2),
    "lr_range": lambda recipe, tmp_path: lr_range(recipe, steps=30),
}


@pytest.mark.sweep
@pytest.mark.parametrize("precision", ["32-true", "bf16-true"])
@pytest.mark.parametrize("way", WAYS)
def test_a_way_restores_what_it_touched(way: str, precision: str, small_recipe, tmp_path):
    recipe = small_recipe("sentiment", "max_steps=2", f"precision={precision}")
    torch.manual_seed(123)
    before = state()
    WAYS[way](recipe, tmp_path)
    assert state() == before


@pytest.mark.sweep
@pytest.mark.parametrize("way", WAYS)
def test_a_way_restores_what_it_touched_when_the_recipe_fails(way: str, small_recipe, tmp_path):
    import dataclasses

    def loss(model, batch):
        raise ArithmeticError("mine")

    recipe = dataclasses.replace(small_recipe("sentiment", "max_steps=2"), loss=loss)
    before = state()
    with pytest.raises(ArithmeticError, match="mine"):
        WAYS[way](recipe, tmp_path)
    assert state() == before


def test_watching_restores_what_it_touched_and_leaves_the_model_alone():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    model[1].eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = state()
    with pytest.raises(ArithmeticError), surefoot.watch(model, optimizer):
        raise ArithmeticError
    assert state() == before
    assert (model.training, model[1].training) == (True, False)
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    assert not optimizer._optimizer_step_pre_hooks


def test_this_proof_can_fail():
    before = state()
    torch.rand(1)
    assert state() != before
