"""Two plans side by side: the knobs in which they differ, and what that changes."""

from __future__ import annotations

from dataclasses import dataclass

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Turned:
    """A knob, or another choice, that is not the same in both plans. None: it is not there."""

    name: str
    before: Value
    after: Value


@dataclass(frozen=True)
class Change:
    """An amount in both plans. None: this plan does not know it."""

    account: str
    unit: str
    before: float | None
    after: float | None

    @property
    def difference(self) -> float | None:
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def ratio(self) -> float | None:
        """After over before; None where there is no such number."""
        return self.after / self.before if self.before and self.after is not None else None


@dataclass(frozen=True)
class PlanChanges:
    """What differs between two plans: knobs and choices first, then every amount that either of them has."""

    before: str
    after: str
    turned: tuple[Turned, ...]
    changes: tuple[Change, ...]
    reasons: tuple[str, ...] = ()
    """What makes up the difference of the peak, and of the seconds: the largest parts first."""
