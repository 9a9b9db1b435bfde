"""Finds recurrent and attention layers that treat the batch dimension as time."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from surefoot.checks.engine.rerun import Again

OVER_TIME = (nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


def over_samples(again: Again, samples: int, *, drawn: bool) -> str:
    """The first layer that treats the samples as time steps; empty if there is none.

    Its time dimension gets shorter when a sample is removed. A single row of steps may be intended, unless the steps
    are samples that were `drawn` one by one.
    """
    names = [name for name, module in again.model.named_modules() if isinstance(module, OVER_TIME)]
    if not names:
        return ""
    whole = _entered(again, names, {})
    less = {n: each[:-1] for n, each in enumerate(again.inputs) if each.dim() and each.shape[0] == samples}
    cut = _entered(again, names, less)
    for name in names:
        before, after = whole.get(name, ()), cut.get(name, ())
        if len(before) == len(after) == 3:
            time = 1 if _batch_first(again.model.get_submodule(name)) else 0
            shorter = before[time] == samples == after[time] + 1 and before[1 - time] == after[1 - time]
            meant = before[1 - time] == 1 and (not drawn or _is_in_one_row(again.model.get_submodule(name)))
            if shorter and not meant:
                return name
    return ""


def in_one_row(again: Again, samples: int) -> bool:
    """Does an attention layer get all samples as one row of steps, in its own layout?"""
    names = [name for name, each in again.model.named_modules() if isinstance(each, OVER_TIME) and _is_in_one_row(each)]
    return any(shape[:2] == (1, samples) for shape in _entered(again, names, {}).values())


def _is_in_one_row(module: nn.Module) -> bool:
    """Can this layer get its samples as (1, samples) on purpose? A recurrent layer has no use for their order."""
    return not isinstance(module, nn.RNNBase) and _batch_first(module)


def _entered(again: Again, names: list[str], changed: dict[int, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    """The shape of the first input of each layer."""
    seen: dict[str, tuple[int, ...]] = {}

    def note(name: str, args: Any) -> None:
        if args and isinstance(args[0], torch.Tensor):
            seen.setdefault(name, tuple(args[0].shape))

    hooks = [
        again.model.get_submodule(name).register_forward_pre_hook(lambda _, args, name=name: note(name, args))
        for name in names
    ]
    try:
        again(changed)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _batch_first(module: nn.Module) -> bool:
    attention = getattr(module, "self_attn", module)
    return bool(getattr(attention, "batch_first", False))
