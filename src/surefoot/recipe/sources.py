"""Data that is made and not stored: functions of a number, objects with a state, generators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import IterableDataset

from surefoot.errors import RecipeError

PUT_BACK = (
    "give it state_dict() and load_state_dict(state), or write it as a function of the micro-batch: batch(number, size)"
)
"""What to do with data that cannot be put back to where it was."""


class Function:
    """A function `batch(number, size)` as an object with that method."""

    def __init__(self, batch: Callable[[int, int], Any]) -> None:
        self.batch = batch


class StatefulIterator:
    """An iterator over whole micro-batches that can say where it is, and be put back there."""

    def __init__(self, batches: Iterator[Any], name: str) -> None:
        self._batches, self._name = batches, name

    def batch(self, number: int, size: int) -> Any:
        """The next micro-batch, whatever its number."""
        try:
            return next(self._batches)
        except StopIteration:
            raise RecipeError(f"{self._name} ended after {number:,} micro-batches: it must have no end") from None

    def state_dict(self) -> Any:
        return self._batches.state_dict()  # type: ignore[attr-defined]

    def load_state_dict(self, state: Any) -> None:
        self._batches.load_state_dict(state)  # type: ignore[attr-defined]


class Generated(IterableDataset[Any]):
    """A stream of samples that a function opens anew for every pass."""

    def __init__(self, opened: Callable[[], Iterator[Any]]) -> None:
        self._opened = opened

    def __iter__(self) -> Iterator[Any]:
        return iter(self._opened())


def is_source(data: Any) -> bool:
    """Whether it makes micro-batches itself: it has `batch(number, size)`, no samples to index and no iterator."""
    kind = type(data)
    return callable(getattr(data, "batch", None)) and not hasattr(kind, "__getitem__") and not hasattr(kind, "__iter__")


def has_state(data: Any) -> bool:
    """Whether it makes micro-batches and has a state, which a checkpoint must hold."""
    return is_source(data) and _can_be_put_back(data)


def made_into_source(made: Any, name: str, again: Callable[[], Any]) -> Any:
    """What a recipe's `data` returned as a source or a stream, or None if it is neither. `again` makes it once more."""
    if isinstance(made, type):
        return None
    if isinstance(made, Iterator):
        return _from_iterator(made, name, again)
    if hasattr(type(made), "__iter__"):
        return Generated(lambda: iter(made))
    if is_source(made):
        _refuse_other_arguments(made.batch, f"{name}: batch")
        return _own(made, name, again) if _can_be_put_back(made) else made
    if inspect.isgeneratorfunction(made):
        return Generated(made)
    if callable(made) and not hasattr(made, "state_dict"):
        _refuse_other_arguments(made, name)
        return Function(made)
    return None


def _from_iterator(made: Iterator[Any], name: str, again: Callable[[], Any]) -> Any:
    if _can_be_put_back(made):
        return StatefulIterator(_own(made, name, again), name)
    if again() is made:
        raise RecipeError(
            f"{name} returned the same iterator twice, and an iterator cannot be put back after a kill: make it "
            f"inside data(), so that it begins anew; or {PUT_BACK}"
        )
    return Generated(again)


def _own(made: Any, name: str, again: Callable[[], Any]) -> Any:
    """Refuses one object for several runs: a plan that comes before a training would change its state."""
    if again() is made:
        raise RecipeError(
            f"{name} returned the same {type(made).__name__} twice: make it inside data(), so that every plan, check "
            "and run begins with its first state"
        )
    return made


def _can_be_put_back(made: Any) -> bool:
    return callable(getattr(made, "state_dict", None)) and callable(getattr(made, "load_state_dict", None))


def _refuse_other_arguments(function: Callable[..., Any], who: str) -> None:
    """Raises unless it can be called with a number and a size."""
    try:
        inspect.signature(function).bind(0, 1)
    except TypeError as error:
        raise RecipeError(f"{who} must take (number, size), the micro-batch and its samples: {error}") from None
    except ValueError:  # a built-in without a signature
        return
