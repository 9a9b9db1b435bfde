"""Counters: plain numbers that a model's forwards change and its outputs depend on, and that no state_dict holds."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from surefoot.probes.again import CHANGED, Again, change

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
