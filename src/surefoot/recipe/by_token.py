"""A schedule of the learning rate with lengths in tokens, which a recipe turns into one by step."""

from collections.abc import Callable
from dataclasses import dataclass

Schedule = Callable[[int, int], float]
"""The factor of the learning rate from the step, counted from 0, and the number of steps."""


@dataclass(frozen=True)
class ByToken:
    """A schedule with lengths in tokens. `by_step(tokens_per_step)` turns it into a schedule by step."""

    by_step: Callable[[int], Schedule]
