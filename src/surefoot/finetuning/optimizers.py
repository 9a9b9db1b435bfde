"""Optimizers of fine-tuning: AdamW with states of 32 bits, or of 8 bits by bitsandbytes; Adafactor and Muon of torch.

`adamw8bit` keeps both averages of a tensor with at least 4,096 elements as a byte per element, and a scale for every
256 of them: 2.03 bytes instead of 8 for each trained parameter. Smaller tensors keep 32 bits. `adafactor` keeps a
number for each row and column of a matrix. `muon` keeps one average, and takes learning rates of the size of AdamW's.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch.distributed.tensor import DTensor

from surefoot.errors import RecipeError, installing
from surefoot.torch_inside.modes import unseen

OptimizerName = Literal["adamw", "adamw8bit", "adafactor", "muon"]


def optimizer_of(name: OptimizerName, rate: float, decay: float = 0.0) -> Callable[[Any], torch.optim.Optimizer]:
    """A function that makes the optimizer of parameters. Loads bitsandbytes now: not in a fake world."""
    if name == "adamw":
        return lambda parameters: torch.optim.AdamW(parameters, lr=rate, weight_decay=decay)
    if name == "adafactor":
        return lambda parameters: _whole(torch.optim.Adafactor(parameters, lr=rate, weight_decay=decay), name)
    if name == "muon":
        if not hasattr(torch.optim, "Muon"):
            raise RecipeError("optimizer=muon needs torch 2.9 or newer; use optimizer=adamw")
        return functools.partial(_muon, rate=rate, decay=decay)
    try:
        importlib.import_module("bitsandbytes")
    except ImportError as error:
        raise RecipeError(f"optimizer={name} needs bitsandbytes: {installing('finetune', 'bitsandbytes')}") from error
    return functools.partial(_eight_bit, rate=rate, decay=decay)


def _eight_bit(parameters: Any, *, rate: float, decay: float) -> torch.optim.Optimizer:
    return _whole(_kind()(parameters, lr=rate, weight_decay=decay), "adamw8bit")


def _muon(parameters: Any, *, rate: float, decay: float) -> torch.optim.Optimizer:
    given = list(parameters)
    tensors = [each for group in given for each in (group["params"] if isinstance(group, dict) else [group])]
    others = sum(each.dim() != 2 for each in tensors)
    if others:
        raise RecipeError(
            f"optimizer=muon updates matrices, and {others} of the {len(tensors)} trained tensors are none: use it "
            "with method=lora or qlora, or use optimizer=adamw"
        )
    made = torch.optim.Muon(given, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    return _whole(made, "muon")


def _whole(made: torch.optim.Optimizer, name: str) -> torch.optim.Optimizer:
    """The optimizer, or an error if its parameters are sharded: its update needs whole tensors."""
    if any(isinstance(each, DTensor) for group in made.param_groups for each in group["params"]):
        raise RecipeError(
            f"optimizer={name} does not work on sharded parameters: set dp_shard=1, or use optimizer=adamw"
        )
    return made


@functools.cache
def _kind() -> Any:
    """bitsandbytes' optimizer. Its tables are made of numbers, so that a plan sees them and reads no tensor."""
    import bitsandbytes

    class AdamW8bit(bitsandbytes.optim.AdamW8bit):  # type: ignore[misc]
        def fill_qmap(self) -> None:
            self.name2qmap = {"dynamic": torch.tensor(_table(True)), "udynamic": torch.tensor(_table(False))}

    return AdamW8bit


@functools.cache
def _table(signed: bool) -> list[float]:
    """The 256 numbers that a byte stands for."""
    from bitsandbytes.functional import create_dynamic_map

    with unseen():
        numbers: list[float] = create_dynamic_map(signed=signed).tolist()
    return numbers
