"""Extreme draws: random numbers of Python and numpy at the lower or the upper end, to find the costliest branch.

Code that leaves out a layer by chance compares a draw with a number. If all draws are as low, or as high, as they can
be, then all layers are kept, or none. Only draws between two bounds are replaced; others, such as normal ones, stay.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import numpy as np

from surefoot.torch_inside.patches import patched
from surefoot.world.user_line import NOT_THE_USER

EXTREMES = ("low", "high")
MOST_DRAWS = 2000
"""After so many extreme draws others follow: code may draw until it gets a number that suits it."""
_NEARLY = 1 - 2**-11
"""Of the way from the lower to the upper bound, which most draws do not reach; float16 holds it."""


@contextmanager
def extreme_draws(extreme: str) -> Iterator[None]:
    """A context in which draws between two bounds are at the `low` or the `high` one."""
    low = extreme == "low"

    def unit(*size: Any, **_: Any) -> Any:
        return _filled(size, 0.0 if low else _NEARLY)

    def uniform(first: float = 0.0, last: float = 1.0, size: Any = None) -> Any:
        return _filled(size, first if low else first + (last - first) * _NEARLY)

    def between(first: int, last: int) -> int:
        return first if low else last

    def below(first: int, last: int | None = None, step: int = 1, **_: Any) -> int:
        places = range(first) if last is None else range(first, last, step)
        return places[0 if low else -1]

    def below_in_numpy(first: int, last: int | None = None, size: Any = None, dtype: Any = int) -> Any:
        return np.full(size, below(int(first), last), dtype)[()] if size is not None else below(int(first), last)

    def choice(items: Any) -> Any:
        return items[0 if low else -1]

    one: dict[str, Callable[..., Any]] = {
        "random": lambda: unit(),
        "uniform": uniform,
        "randint": between,
        "randrange": below,
        "choice": choice,
    }
    many: dict[str, Callable[..., Any]] = {
        "rand": unit,
        "random": lambda size=None: unit(size),
        "random_sample": lambda size=None: unit(size),
    }
    many |= {"uniform": uniform, "randint": below_in_numpy}
    with ExitStack() as entered:
        for name, made in one.items():
            entered.enter_context(patched(random, name, _instead(made)))
        for name, made in many.items():
            entered.enter_context(patched(np.random, name, _instead(made)))
        yield


@contextmanager
def heard_draws(heard: Callable[[], None]) -> Iterator[None]:
    """A context in which `heard` is called when the user's code draws a number with a function of `random`."""

    def make(plain: Any) -> Callable[..., Any]:
        def drawn(*args: Any, **kwargs: Any) -> Any:
            if not _is_foreign(sys._getframe(2)):
                heard()
            return plain(*args, **kwargs)

        return drawn

    with ExitStack() as entered:
        for name in random.__all__:
            if callable(getattr(random, name)) and name.islower():
                entered.enter_context(patched(random, name, make))
        yield


def _is_foreign(frame: FrameType) -> bool:
    """Whether the code that draws is torch's, which needs no extreme numbers and may wait for others."""
    return frame.f_globals.get("__name__", "").split(".")[0] in NOT_THE_USER


def _instead(made: Any) -> Callable[[Any], Any]:
    """A maker for `patched`. The first draws of the user's code are replaced, and none of torch's."""
    draws = itertools.count()

    def make(plain: Any) -> Callable[..., Any]:
        def drawn(*args: Any, **kwargs: Any) -> Any:
            if _is_foreign(sys._getframe(2)) or next(draws) > MOST_DRAWS:
                return plain(*args, **kwargs)
            return made(*args, **kwargs)

        return drawn

    return make


def _filled(size: Any, value: float) -> Any:
    """An array of one value; a number if no size is given."""
    sizes = [each for each in (size if isinstance(size, tuple) else (size,)) if each is not None]
    if not sizes:
        return value
    return np.full(sizes[0] if isinstance(sizes[0], tuple | list) else sizes, value)
