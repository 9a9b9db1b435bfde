"""The ledger: predicted, measured and the difference, account by account."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from surefoot.records.shown import Shown
from surefoot.records.tally import Account, Tally
from surefoot.units import amount_text


def differs(
    predicted: float, measured: float, tolerance: float, floor: float, interval: tuple[float, float] | None
) -> bool:
    """Whether a difference means something: it exceeds `floor` in its unit and `tolerance` as a share of the
    prediction, and the measurement lies outside of the interval that was predicted."""
    inside = interval is not None and interval[0] <= measured <= interval[1]
    return not (inside or abs(measured - predicted) <= max(floor, tolerance * abs(predicted)))


@dataclass(frozen=True)
class Entry:
    """One account, predicted and measured. A side without a number is None."""

    account: str
    unit: str
    predicted: int | float | None
    measured: int | float | None
    tolerance: float = 0.0
    attribution: str = ""
    """The module, operator or phase that causes a difference beyond the tolerance."""
    cause: str = ""
    """The reason, if it is known."""
    floor: float = 0.0
    """A smaller difference, in this unit, means nothing."""
    interval: tuple[float, float] | None = None
    """Between which amounts the measurement was predicted."""
    partial: bool = False
    """Whether the measurement is of a part of what was predicted: the run goes on, or ended before its last step."""

    @property
    def difference(self) -> int | float | None:
        """Measured minus predicted; None if a side is missing."""
        if self.predicted is None or self.measured is None:
            return None
        return self.measured - self.predicted

    @property
    def agrees(self) -> bool | None:
        """Whether there is no difference that means something; None if the two sides cannot be compared."""
        if self.predicted is None or self.measured is None or self.partial:
            return None
        limits = self.tolerance, self.floor, self.interval
        return not differs(self.predicted, self.measured, *limits)

    @property
    def is_small(self) -> bool:
        """Whether the two sides are so close, in their unit, that a share of the prediction would mislead."""
        return self.difference is not None and abs(self.difference) <= self.floor


@dataclass(frozen=True)
class Ledger(Shown):
    """Entries in order of account."""

    entries: tuple[Entry, ...] = ()

    @classmethod
    def of(
        cls,
        predicted: Tally,
        measured: Tally,
        *,
        depth: int = 2,
        tolerances: Mapping[str, float] | None = None,
        floors: Mapping[str, float] | None = None,
        intervals: Mapping[str, tuple[float, float]] | None = None,
    ) -> "Ledger":
        """Two tallies side by side, cut at `depth`. A tolerance or a floor applies to an account and all below it."""
        limits = (tolerances or {}, floors or {}, intervals or {})
        left = {account.name: account for account in predicted.cut(depth).accounts}
        right = {account.name: account for account in measured.cut(depth).accounts}
        names = sorted({*left, *right})
        return cls(tuple(_entry(name, left.get(name), right.get(name), *limits) for name in names))

    def explained(self, predicted: Tally, measured: Tally) -> "Ledger":
        """The same ledger, naming the deeper accounts that make up each difference beyond its tolerance."""
        return Ledger(tuple(_attributed(entry, predicted, measured) for entry in self.entries))

    @property
    def disagreements(self) -> tuple[Entry, ...]:
        """The entries with a difference that means something."""
        return tuple(entry for entry in self.entries if entry.agrees is False)


def _entry(
    name: str,
    left: Account | None,
    right: Account | None,
    tolerances: Mapping[str, float],
    floors: Mapping[str, float],
    intervals: Mapping[str, tuple[float, float]],
) -> Entry:
    unit = (left or right or Account(name, 0, "")).unit
    if left is not None and right is not None and left.unit != right.unit:
        raise ValueError(f"account {name!r} is predicted in {left.unit} and measured in {right.unit}")
    return Entry(
        name,
        unit,
        left.amount if left else None,
        right.amount if right else None,
        tolerance=_nearest(name, tolerances),
        floor=_nearest(name, floors),
        interval=intervals.get(name),
    )


def _nearest(name: str, limits: Mapping[str, float]) -> float:
    """The limit of an account, or of the nearest account above it."""
    parts = name.split("/")
    above = ("/".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((limits[each] for each in above if each in limits), 0.0)


def _attributed(entry: Entry, predicted: Tally, measured: Tally) -> Entry:
    if entry.agrees is not False or entry.attribution:
        return entry
    sides = [{each.name: each.amount for each in tally.accounts} for tally in (predicted, measured)]
    below = {name for side in sides for name in side if name.startswith(f"{entry.account}/")}
    differences = {name: sides[1].get(name, 0) - sides[0].get(name, 0) for name in below}
    most = sorted((name for name in below if differences[name]), key=lambda name: -abs(differences[name]))
    told = [f"{name[len(entry.account) + 1 :]} {amount_text(differences[name], entry.unit)}" for name in most[:2]]
    return replace(entry, attribution=", ".join(told))
