"""Overfit: the result of training on a single batch."""

from dataclasses import dataclass
from math import inf
from typing import Literal

from surefoot.records.finding import Findings


@dataclass(frozen=True)
class Attempt:
    """A fresh model trained on the batch at one constant learning rate.

    `losses` has the loss of every step before its update. A loss that is not finite ends the attempt and is left out.
    """

    lr: float
    losses: tuple[float, ...]
    outcome: Literal["learned", "not learned", "diverged"]

    @property
    def last_loss(self) -> float:
        """The final loss; infinity if the attempt diverged."""
        return self.losses[-1] if self.losses and self.outcome != "diverged" else inf


@dataclass(frozen=True)
class Wiring:
    """How loss, parameters and optimizer are connected."""

    parameters: int
    """The number of trainable parameters. Frozen ones should not change."""
    repeated_losses: tuple[float, ...]
    """The loss of the batch, twice, without an update in between."""
    detached: tuple[str, ...]
    """Parameters that affect the loss but only ever receive zero gradients."""
    outside: tuple[str, ...]
    """Parameters that are not in the optimizer."""

    @property
    def random(self) -> bool:
        """Whether the same batch and weights give two different losses."""
        first, *others = self.repeated_losses or (0.0,)
        return any(abs(other - first) > 1e-4 * abs(first) for other in others)


@dataclass(frozen=True)
class Overfit:
    """The attempts in order, the wiring and the findings. `switched_off` maps each disabled setting to the reason."""

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
