"""Space: which knobs a sweep varies, and over which values: `lr=1e-5..1e-3 rank=8,16,64`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.errors import RecipeError
from surefoot.recipe.knobs import convert, kinds_of, unknown_knob
from surefoot.recipe.load import find_function, known_knobs
from surefoot.recipe.recipe import Knob

_NUMBER = r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})")
LOG_FROM = 10
"""A range of positive numbers whose end is so many times its beginning is searched in equal steps of the logarithm."""
DIGITS = 4
"""Of a number that a sweep chooses: what is planned, trained and printed is the same."""


@dataclass(frozen=True)
class Axis:
    """The values of one knob: some of them, or all between two numbers."""

    name: str
    choices: tuple[Knob, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = False

    @property
    def is_log(self) -> bool:
        return self.low > 0 and self.high / self.low >= LOG_FROM

    def suggested(self, trial: Any) -> Knob:
        """The value that Optuna suggests."""
        if self.choices:
            return trial.suggest_categorical(self.name, self.choices)
        if self.whole:
            return trial.suggest_int(self.name, int(self.low), int(self.high), log=self.is_log)
        found = float(f"{trial.suggest_float(self.name, self.low, self.high, log=self.is_log):.{DIGITS}g}")
        return min(max(found, self.low), self.high)

    def distribution(self, library: Any) -> Any:
        """The same for a trial that is known already."""
        kinds = library.distributions
        if self.choices:
            return kinds.CategoricalDistribution(self.choices)
        if self.whole:
            return kinds.IntDistribution(int(self.low), int(self.high), log=self.is_log)
        return kinds.FloatDistribution(self.low, self.high, log=self.is_log)


def axes_of(target: str, words: Sequence[str]) -> tuple[list[Axis], dict[str, Knob]]:
    """The knobs that vary, and those that all trials share.

    `LOW..HIGH` is a range and `A,B,C` a list of values. A knob that takes any text may hold commas, so its values are
    given one by one: `recompute=none recompute=full`.
    """
    known = known_knobs(find_function(target))
    given: dict[str, list[str]] = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name:
            raise RecipeError(f"{word!r} is not a knob; write name=value, name=LOW..HIGH or name=A,B,C")
        if name not in known:
            raise unknown_knob(target, name, known)
        given.setdefault(name, []).append(value)
    axes, fixed = list[Axis](), dict[str, Knob]()
    for name, values in given.items():
        found = _axis(name, values, known[name])
        if isinstance(found, Axis):
            axes.append(found)
        else:
            fixed[name] = found[0]
    if not axes:
        raise RecipeError("no knob varies; write a range, lr=1e-5..1e-3, or several values, rank=8,16,64")
    return axes, fixed


def _axis(name: str, values: list[str], hint: Any) -> Axis | tuple[Knob]:
    kinds = kinds_of(hint)
    limits = _RANGE.fullmatch(values[0]) if len(values) == 1 and {int, float} & set(kinds) else None
    if limits is not None:
        low, high = (convert(name, text, hint) for text in limits.groups())
        if not low < high:
            raise RecipeError(f"{name}={values[0]}: a range begins with its smaller end")
        return Axis(name, low=float(low), high=float(high), whole=float not in kinds)
    parts = values[0].split(",") if len(values) == 1 and str not in kinds else values
    made = tuple(dict.fromkeys(convert(name, each, hint) for each in parts))
    return Axis(name, made) if len(made) > 1 else (made[0],)
