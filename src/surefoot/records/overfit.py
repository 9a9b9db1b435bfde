"""Overfit: what came of learning one batch by heart."""

from dataclasses import dataclass
from math import inf
from typing import Literal

from surefoot.records.finding import Findings


@dataclass(frozen=True)
class Attempt:
    """A fresh model trained on the batch at one constant learning rate.

    `losses` are those of every step, before its update. One that is not finite ends an attempt and is left out.
    """

    lr: float
    losses: tuple[float, ...]
    outcome: Literal["learned", "not learned", "diverged"]

    @property
    def last_loss(self) -> float:
        """Where it ended; infinity for an attempt that diverged."""
        return self.losses[-1] if self.losses and self.outcome != "diverged" else inf


@dataclass(frozen=True)
class Wiring:
    """How loss, parameters and optimizer hang together."""

    parameters: int
    """Trainable ones; frozen ones are meant to stay as they are."""
    repeated_losses: tuple[float, ...]
    """Of the batch, twice, with no update between."""
    detached: tuple[str, ...]
    """Parameters that change the loss and never receive a gradient other than zero."""
    outside: tuple[str, ...]
    """Parameters that the optimizer does not hold."""

    @property
    def random(self) -> bool:
        """The loss of the same batch and the same weights is not the same twice."""
        first, *others = self.repeated_losses or (0.0,)
        return any(abs(other - first) > 1e-4 * abs(first) for other in others)


@dataclass(frozen=True)
class Overfit:
    """The attempts, in order, and what they say about the wiring. `switched_off` says why."""

    recipe: str
    knobs: dict[str, str | int | float | bool | None]
    samples: int
    max_steps: int
    target_loss: float
    switched_off: dict[str, str]
    wiring: Wiring
    attempts: tuple[Attempt, ...]
    findings: Findings

    @property
    def verdict(self) -> Literal["learned", "not learned"]:
        """Did one of the attempts reach the target?"""
        return "learned" if any(attempt.outcome == "learned" for attempt in self.attempts) else "not learned"
