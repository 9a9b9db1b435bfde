"""The budget of a plan: what it may take, and what it takes of that."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """At most so much memory on each device, so many days and so many dollars; None is no limit."""

    memory_bytes: int | None = None
    days: float | None = None
    dollars: float | None = None


@dataclass(frozen=True)
class Limit:
    """One limit of a budget, and what the plan takes of it. `whose` says who set it: the budget, or a device."""

    name: str
    unit: str
    allowed: float
    amount: float
    whose: str = "the budget"

    @property
    def holds(self) -> bool:
        return self.amount <= self.allowed

    @property
    def excess(self) -> float:
        """How much too much; below 0 what is to spare."""
        return self.amount - self.allowed
