"""Counters: what a model's outputs depend on and no state_dict holds: numbers that forwards change, drawn tables."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from surefoot.probes.again import CHANGED, Again, change, other

Numbers = dict[tuple[str, str], float]
"""By module and attribute."""


def numbers_of(model: nn.Module) -> Numbers:
    """The plain numbers among the attributes of a model's modules."""
    return {
        (name, attribute): value
        for name, module in model.named_modules()
        for attribute, value in vars(module).items()
        if type(value) in (int, float)
    }


def lost_numbers(again: Again, first: Numbers) -> Iterator[str]:
    """Numbers that a forward changes by itself, and on whose first values its outputs would depend."""
    before = numbers_of(again.model)
    output = again(training=True)
    counting = [each for each, value in numbers_of(again.model).items() if each in first and before.get(each) != value]
    for name, attribute in counting:
        module = again.model.get_submodule(name)
        setattr(module, attribute, first[name, attribute])
        fresh = again(training=True)
        setattr(module, attribute, before[name, attribute])
        if any(change(a, b) > CHANGED for a, b in zip(output, fresh, strict=False)):
            yield f"{name}.{attribute}".lstrip(".")


def lost_tables(again: Again, names: tuple[str, ...]) -> Iterator[str]:
    """Of the tensors with these names, those on whose values the outputs depend."""
    output = again()
    for name in names:
        holder, _, attribute = name.rpartition(".")
        module = again.model.get_submodule(holder)
        before = getattr(module, attribute)
        setattr(module, attribute, other(before, 0))
        fresh = again()
        setattr(module, attribute, before)
        if any(change(a, b) > CHANGED for a, b in zip(output, fresh, strict=False)):
            yield name
