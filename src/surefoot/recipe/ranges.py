"""Ranges of numbers, and hints with ranges for the knobs of a recipe."""

from __future__ import annotations

import math
import numbers
import operator
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from surefoot.errors import RecipeError

MOST = 2**63 - 1
"""The largest int64."""
_KINDS = {int: "a whole number", float: "a number"}


@dataclass(frozen=True)
class Range:
    """Numbers of one kind from `low` to `high`.

    `above` excludes `low` itself. `none` allows None too. The numbers in `also` and the `word` are allowed too.
    """

    kind: type[int] | type[float]
    low: float
    high: float = MOST
    above: bool = False
    none: bool = False
    also: tuple[int, ...] = ()
    word: str | None = None

    def check(self, name: str, value: Any) -> Any:
        """The value as a number of this kind, or a `RecipeError` that says what it must be."""
        if (value is None and self.none) or (isinstance(value, str) and value == self.word):
            return value
        number = self._number(value)
        if number is None:
            raise RecipeError(f"{name}={_short(value)} must be {_KINDS[self.kind]}, {self}")
        above_low = self.low < number if self.above else self.low <= number
        if number not in self.also and not (above_low and number <= self.high):
            raise RecipeError(f"{name}={_short(value)} must be {self}")
        return number

    def _number(self, value: Any) -> int | float | None:
        """None if it is not a number of this kind: text, True, NaN, infinity, 2.5 for a whole number."""
        if isinstance(value, bool):
            return None
        if isinstance(value, numbers.Integral):
            return operator.index(value)
        if not isinstance(value, numbers.Real) or not math.isfinite(value):
            return None
        number = float(value)
        if self.kind is float:
            return number
        return int(number) if number.is_integer() else None

    def __str__(self) -> str:
        low = f"above {self.low:,}" if self.above else f"at least {self.low:,}"
        high = f" and at most {self.high:,}" if self.high != MOST else ""
        also = "".join(f", or {each} for all remaining ranks" for each in self.also)
        return low + high + also + (", or None" if self.none else "") + (f", or {self.word}" if self.word else "")


def _short(value: Any) -> str:
    if isinstance(value, int) and abs(value) > MOST:
        return f"{float(value):.3g}" if value.bit_length() < 1000 else f"(a number of {value.bit_length()} bits)"
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"


@dataclass(frozen=True)
class Settled:
    """In the hint of a knob whose text may mean something else tomorrow: `settle` says what it means now."""

    settle: Callable[[str], str]


Count = Annotated[int, Range(int, 1, 10**9)]
Layers = Annotated[int, Range(int, 1, 10_000)]
Rate = Annotated[float, Range(float, 0)]
Positive = Annotated[float, Range(float, 0, above=True)]
Share = Annotated[float, Range(float, 0, 1)]
Number = Annotated[float, Range(float, -1e30, 1e30)]
CountOrNone = Annotated[int | None, Range(int, 1, 10**9, none=True)]
LayersOrNone = Annotated[int | None, Range(int, 1, 10_000, none=True)]
PositiveOrNone = Annotated[float | None, Range(float, 0, above=True, none=True)]
RateOrNone = Annotated[float | None, Range(float, 0, none=True)]
"""Hints for the knobs of a recipe: `def gpt(layers: Layers = 12, lr: Rate = 6e-4) -> Recipe`."""


def check_knobs(function: Callable[..., Any], values: Mapping[str, Any]) -> None:
    """Checks values against the ranges in the type hints of the function that will take them."""
    for name, hint in typing.get_type_hints(function, include_extras=True).items():
        for wanted in getattr(hint, "__metadata__", ()):
            if isinstance(wanted, Range) and name in values:
                wanted.check(name, values[name])


def settled(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as the run keeps them: what a text stands for now, where its hint has a `Settled`."""
    made = dict(values)
    for name, hint in typing.get_type_hints(function, include_extras=True).items():
        for each in getattr(hint, "__metadata__", ()):
            if isinstance(each, Settled) and name in made:
                made[name] = each.settle(made[name])
    return made
