"""Compares two plans: the knobs that differ, and what that changes."""

from __future__ import annotations

from dataclasses import dataclass

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Turned:
    """A knob or other choice that differs between the plans. None means that a plan does not have it."""

    name: str
    before: Value
    after: Value


@dataclass(frozen=True)
class Change:
    """An amount in both plans. None means that a plan does not know it."""

    account: str
    unit: str
    before: float | None
    after: float | None

    @property
    def difference(self) -> float | None:
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def ratio(self) -> float | None:
        """After / before; None if it cannot be computed."""
        return self.after / self.before if self.before and self.after is not None else None


@dataclass(frozen=True)
class PlanChanges:
    """The differences between two plans: knobs and choices, then every amount that either plan has."""

    before: str
    after: str
    turned: tuple[Turned, ...]
    changes: tuple[Change, ...]
    reasons: tuple[str, ...] = ()
    """The parts that make up the difference of the peak, FLOPs and seconds, largest first."""
