"""Builds the training data of a recipe with its own seed, and counts the samples of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from surefoot.errors import RecipeError
from surefoot.randomness import derive, kept, seed_all
from surefoot.recipe.returned import checked_data
from surefoot.torch_inside.modes import unseen

if TYPE_CHECKING:
    from torch.utils.data import Dataset


@contextmanager
def seeded(seed: int, part: str) -> Iterator[None]:
    """Data is real in every world, and building it does not change the random generators."""
    with unseen(), kept():
        seed_all(derive(seed, part))
        yield


def training_data(data: Callable[[], Any], seed: int, name: str) -> Dataset[Any]:
    with seeded(seed, "data"):
        return checked_data(data(), f"{name}: data()", data)


def samples_of_epoch(data: Any, max_epochs: float) -> int:
    try:
        return len(data)
    except TypeError:
        raise RecipeError(
            f"max_epochs={max_epochs:g} needs data with a length, and {type(data).__name__} has none; "
            "set max_steps or max_tokens"
        ) from None
