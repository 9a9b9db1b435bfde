"""The ledger: predicted, measured and the difference, account by account."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from surefoot.records.tally import Account, Tally
from surefoot.records.units import amount_text


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

    @property
    def difference(self) -> int | float | None:
        """Measured minus predicted; None if a side is missing."""
        if self.predicted is None or self.measured is None:
            return None
        return self.measured - self.predicted

    @property
    def agrees(self) -> bool | None:
        """Whether the difference is within the tolerance, which is a share of the prediction."""
        if self.predicted is None or self.measured is None:
            return None
        return abs(self.measured - self.predicted) <= self.tolerance * abs(self.predicted)


@dataclass(frozen=True)
class Ledger:
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
    ) -> "Ledger":
        """Two tallies side by side, cut at `depth`. A tolerance applies to an account and all below it."""
        allowed = dict(tolerances or {})
        left = {account.name: account for account in predicted.cut(depth).accounts}
        right = {account.name: account for account in measured.cut(depth).accounts}
        names = sorted({*left, *right})
        return cls(tuple(_entry(name, left.get(name), right.get(name), allowed) for name in names))

    def explained(self, predicted: Tally, measured: Tally) -> "Ledger":
        """The same ledger, naming the deeper accounts that make up each difference beyond its tolerance."""
        return Ledger(tuple(_attributed(entry, predicted, measured) for entry in self.entries))

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from surefoot.records.html import ledger_table

        return ledger_table(self)

    @property
    def disagreements(self) -> tuple[Entry, ...]:
        """The entries with a difference beyond the tolerance."""
        return tuple(entry for entry in self.entries if entry.agrees is False)


def _entry(name: str, left: Account | None, right: Account | None, allowed: Mapping[str, float]) -> Entry:
    unit = (left or right or Account(name, 0, "")).unit
    if left is not None and right is not None and left.unit != right.unit:
        raise ValueError(f"account {name!r} is predicted in {left.unit} and measured in {right.unit}")
    parts = name.split("/")
    tolerance = next(
        (allowed["/".join(parts[:n])] for n in range(len(parts), 0, -1) if "/".join(parts[:n]) in allowed),
        0.0,
    )
    return Entry(name, unit, left.amount if left else None, right.amount if right else None, tolerance)


def _attributed(entry: Entry, predicted: Tally, measured: Tally) -> Entry:
    if entry.agrees is not False or entry.attribution:
        return entry
    sides = [{each.name: each.amount for each in tally.accounts} for tally in (predicted, measured)]
    below = {name for side in sides for name in side if name.startswith(f"{entry.account}/")}
    differences = {name: sides[1].get(name, 0) - sides[0].get(name, 0) for name in below}
    most = sorted((name for name in below if differences[name]), key=lambda name: -abs(differences[name]))
    told = [f"{name[len(entry.account) + 1 :]} {amount_text(differences[name], entry.unit)}" for name in most[:2]]
    return replace(entry, attribution=", ".join(told))
