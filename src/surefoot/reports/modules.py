"""Amounts by module: which modules of a tally count as one in a table or a figure."""

from __future__ import annotations

import re
from collections.abc import Callable

from surefoot.records.tally import Tally

_NUMBER = re.compile(r"(?<![^.])\d+(?=\.|$)")


def by_module(tally: Tally, name: str, shown: Callable[[str], str]) -> dict[str, float]:
    """The accounts below a name, summed by module. `shown` gives a module's name in the result."""
    amounts: dict[str, float] = {}
    for account in tally.accounts:
        first, *rest = account.name.split("/", 2)
        if first == name:
            module = shown(rest[1]) if len(rest) > 1 else ""
            amounts[module] = amounts.get(module, 0) + account.amount
    return amounts


def repeated_as_one(module: str) -> str:
    """`model.layers.3.mlp` as `model.layers.*.mlp`: the same for every block."""
    return _NUMBER.sub("*", module)


def numbered(module: str) -> str:
    """A module's name up to its first number, for example `model.layers.3`; its first two parts if it has none."""
    parts = module.split(".")
    place = next((index for index, part in enumerate(parts) if part.isdigit()), 1)
    return ".".join(parts[: place + 1])
