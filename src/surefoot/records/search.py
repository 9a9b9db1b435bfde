"""What fits: the budget, the planned settings, and the answers among them."""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.records.step_time import Interval

HOST = "host memory"
"""The limit of what all ranks of a node keep in the memory of their host."""


@dataclass(frozen=True)
class Budget:
    """The most memory on each device, days and dollars. None means no limit."""

    memory_bytes: int | None = None
    days: float | None = None
    dollars: float | None = None


@dataclass(frozen=True)
class Limit:
    """One limit, and the amount that the plan uses. `whose` says who set it: the budget, or a device.

    `margin` is what stays free beside it.
    """

    name: str
    unit: str
    allowed: float
    amount: float
    whose: str = "the budget"
    margin: float = 0

    @property
    def holds(self) -> bool:
        return self.amount <= self.allowed

    @property
    def excess(self) -> float:
        """The amount above the limit; negative if there is room."""
        return self.amount - self.allowed


@dataclass(frozen=True)
class Trial:
    """One planned setting: what it takes, its limits, and the command that plans it again."""

    command: str
    on: str
    knobs: dict[str, str | int | float | bool | None]
    """The knobs that the search set."""
    parameters: int
    devices: int
    micro_batch_size: int
    micro_batches: int
    tokens_per_step: int
    memory_bytes: int
    flops_per_token: float
    """With recomputation."""
    limits: tuple[Limit, ...] = ()
    layout: str = ""
    step_seconds: float | None = None
    days: float | None = None
    dollars: float | None = None
    dollars_per_hour: float | None = None
    """For one device."""
    interval: Interval | None = None
    """Of the step's seconds."""

    @property
    def fits(self) -> bool:
        """Whether it stays within the memory of its device and of the host."""
        return all(limit.holds for limit in self.limits if limit.name in ("memory", HOST))

    @property
    def holds(self) -> bool:
        """Whether it stays within every limit."""
        return all(limit.holds for limit in self.limits)

    @property
    def token_seconds(self) -> float | None:
        return None if self.step_seconds is None else self.step_seconds / self.tokens_per_step

    @property
    def token_dollars(self) -> float | None:
        """The cost of a token; None if the price or the time is unknown."""
        if self.token_seconds is None or self.dollars_per_hour is None:
            return None
        return self.token_seconds / 3600 * self.devices * self.dollars_per_hour


@dataclass(frozen=True)
class Answer:
    """The trial that answers a question. `beyond` is the next larger trial, which was planned and does not hold."""

    question: str
    trial: Trial
    beyond: Trial | None = None


@dataclass(frozen=True)
class Search:
    """What fits: answers, the trials to choose from (`front`), and all trials.

    The front is Pareto-optimal in memory, seconds per token and dollars per token. If no time is known, it is so in
    memory, FLOPs per token and micro-batch size.
    """

    recipe: str
    about: str
    budget: Budget
    answers: tuple[Answer, ...]
    front: tuple[Trial, ...]
    trials: tuple[Trial, ...]
    notes: tuple[str, ...] = ()
