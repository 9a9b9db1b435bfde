"""Finds numbers that forwards change, that outputs depend on, and that no state_dict holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from surefoot.checks.engine.rerun import CHANGED, Again, change, other

_MOST = 8
Numbers = dict[tuple[str, str], float]
"""Plain numbers by module and attribute."""


def numbers_of(model: nn.Module) -> Numbers:
    """The plain numbers among the attributes of a model's modules. Skips modules that save an extra state."""
    return {
        (name, attribute): value
        for name, module in model.named_modules()
        for attribute, value in vars(module).items()
        if type(value) in (int, float) and type(module).get_extra_state is nn.Module.get_extra_state
    }


def lost_numbers(again: Again, first: Numbers) -> Iterator[str]:
    """Numbers that a forward changes and that its outputs depend on."""
    before = numbers_of(again.model)
    output = again(training=True)
    counting = [each for each, value in numbers_of(again.model).items() if each in first and before.get(each) != value]
    for name, attribute in counting:
        path = f"{name}.{attribute}".lstrip(".")
        if _depends(again, output, path, first[name, attribute], before[name, attribute], training=True):
            yield path


def lost_tables(again: Again, names: tuple[str, ...]) -> Iterator[str]:
    """Those of the named tensors that outputs depend on."""
    output = again()
    for path in names:
        holder, _, attribute = path.rpartition(".")
        table = getattr(again.model.get_submodule(holder), attribute)
        if _depends(again, output, path, other(table, 0), table):
            yield path


def idle_tensors(again: Again, names: tuple[str, ...]) -> Iterator[str]:
    """Those of the named tensors that no output depends on: they are never read, or overwritten before."""
    for path in names[:_MOST]:
        holder, _, attribute = path.rpartition(".")
        value = getattr(again.model.get_submodule(holder), attribute)
        pairs = zip(again.course(path, value), again.course(path, other(value, 0)), strict=True)
        if not any(change(one, new) > CHANGED for one, new in pairs):
            yield path


def _depends(
    again: Again, output: list[torch.Tensor], path: str, new: Any, old: Any, *, training: bool = False
) -> bool:
    """Do outputs change with a new value of an attribute? Restores the old value."""
    holder, _, attribute = path.rpartition(".")
    module = again.model.get_submodule(holder)
    setattr(module, attribute, new)
    fresh = again(training=training)
    setattr(module, attribute, old)
    return any(change(a, b) > CHANGED for a, b in zip(output, fresh, strict=False))
