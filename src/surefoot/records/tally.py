"""Accounts and tallies: named amounts with a unit, one type for predicted and measured."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Account:
    """A named amount with a unit, for example `memory/activations/layers.3`, 4096, bytes."""

    name: str
    amount: int | float
    unit: str


@dataclass(frozen=True)
class Tally:
    """A set of accounts, one per name, in order of name."""

    accounts: tuple[Account, ...] = ()

    @classmethod
    def of(cls, accounts: Iterable[Account]) -> "Tally":
        """Makes a tally. Accounts of the same name are added up."""
        booked: dict[str, Account] = {}
        for account in accounts:
            before = booked.get(account.name)
            if before is not None and before.unit != account.unit:
                raise ValueError(f"account {account.name!r} is booked in {before.unit} and in {account.unit}")
            amount = account.amount + (before.amount if before else 0)
            booked[account.name] = Account(account.name, amount, account.unit)
        return cls(tuple(sorted(booked.values())))

    def total(self, name: str) -> int | float:
        """The sum of an account and all below it; 0 if there is none."""
        return sum(account.amount for account in self.accounts if _is_under(account.name, name))

    def cut(self, depth: int) -> "Tally":
        """The same amounts, with names cut to `depth` parts."""
        return Tally.of(
            Account("/".join(account.name.split("/")[:depth]), account.amount, account.unit)
            for account in self.accounts
        )

    def under(self, name: str) -> dict[str, int | float]:
        """The accounts directly below an account: the next part of each name, and its total."""
        below: dict[str, int | float] = {}
        for account in self.accounts:
            if _is_under(account.name, name) and account.name != name:
                part = account.name[len(name) + 1 :].split("/")[0]
                below[part] = below.get(part, 0) + account.amount
        return below

    def __add__(self, other: "Tally") -> "Tally":
        return Tally.of((*self.accounts, *other.accounts))


def _is_under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + "/")
