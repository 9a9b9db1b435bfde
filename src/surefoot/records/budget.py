"""The budget of a plan: its limits, and how much of each the plan uses."""

from __future__ import annotations

from dataclasses import dataclass


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
