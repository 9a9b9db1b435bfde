"""Rules on facts made by hand: the facts that show a bug, and the nearest facts that do not. No torch, no training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import strategies as st

from surefoot.checks.facts import Facts
from surefoot.checks.facts.loop import Backward, Update
from surefoot.checks.facts.losses import Loss
from surefoot.checks.registry import CHECKS, judged
from surefoot.records.finding import Finding

Made = Callable[..., Any]
"""Makes the facts that show a bug. Its parameters are the numbers and names that a rule judges, with their defaults."""


def but(**changed: Any) -> dict[str, Any]:
    """The parameters of a maker that are different."""
    return changed


def also(words: str, /, at: str = "", severity: str = "", **changed: Any) -> tuple[str, str, str, dict[str, Any]]:
    """Other facts that show the same bug, with other words. An empty place or severity stays the same."""
    return words, at, severity, changed


@dataclass(frozen=True)
class Limit:
    """A number from which on a rule reports: the last value on which it is silent, and the first that it reports."""

    silent: float
    reported: float
    ends: tuple[float, float] | None = None
    """The smallest and the largest value to try; from 0 to far above the limit, if there are none."""

    def values(self, *, reported: bool) -> st.SearchStrategy[Any]:
        low, high = self.ends or (0, 8 * max(self.silent, self.reported) + 8)
        edge = self.reported if reported else self.silent
        start, end = (edge, high) if reported == (self.reported > self.silent) else (low, edge)
        return st.integers(start, end) if isinstance(edge, int) else st.floats(start, end)


class Rules:
    """The rules of one subject. Each is called by the maker of its facts."""

    def __init__(self) -> None:
        self.shown: list[Any] = []
        self.spared: list[Any] = []
        self.limits: list[Any] = []

    def __call__(
        self,
        check: str,
        words: str,
        at: str,
        *,
        severity: str = "warning",
        spared: Sequence[Mapping[str, Any]] = (),
        also: Sequence[tuple[str, str, str, Mapping[str, Any]]] = (),
        limits: Mapping[str, Limit | tuple[Limit, ...]] | None = None,
    ) -> Callable[[Made], Made]:
        """Registers facts on which `check` reports these words at a place, once, and changes of them that it spares."""

        def register(make: Made) -> Made:
            for said, place, how, changed in [(words, at, severity, {}), *also]:
                one = Shown(check, said, place or at, how or severity, make, changed)
                self.shown.append(pytest.param(one, id=_named(check, changed)))
            for changed in spared:
                self.spared.append(pytest.param(Spared(check, make, changed), id=_named(check, changed)))
            for name, found in (limits or {}).items():
                for limit in found if isinstance(found, tuple) else (found,):
                    self.limits.append(pytest.param(Limited(check, make, name, limit), id=f"{check}-{name}"))
            return make

        return register


@dataclass(frozen=True)
class Shown:
    """Facts that show a bug."""

    check: str
    words: str
    at: str
    severity: str
    make: Made
    changed: Mapping[str, Any]

    def holds(self) -> None:
        (finding,) = _found(self.check, self.make(**self.changed))
        assert (finding.check, finding.severity, finding.where) == (self.check, self.severity, self.at)
        assert self.words in f"{finding.seen}; {finding.why}; {finding.remedy}"
        assert all(each.where for each in _found(self.check, _without_lines(self.make(**self.changed))))


@dataclass(frozen=True)
class Spared:
    """Facts next to those, which show no bug."""

    check: str
    make: Made
    changed: Mapping[str, Any]

    def holds(self) -> None:
        assert _found(self.check, self.make(**self.changed)) == []


@dataclass(frozen=True)
class Limited:
    """A number of those facts and the limit from which on it counts."""

    check: str
    make: Made
    name: str
    limit: Limit

    def holds(self, data: st.DataObject) -> None:
        for reported, edge in ((False, self.limit.silent), (True, self.limit.reported)):
            for value in (edge, data.draw(self.limit.values(reported=reported), label=self.name)):
                assert len(_found(self.check, self.make(**{self.name: value}))) == reported


def _found(check: str, made: Any) -> list[Finding]:
    return list(judged(CHECKS[check], Facts(*(made if isinstance(made, tuple) else (made,)))))


def _without_lines(made: Any) -> Any:
    """The same facts of a recipe, whose losses, backwards and updates have no line: they run in surefoot's own step."""
    if isinstance(made, tuple):
        return tuple(_without_lines(each) for each in made)
    if not is_dataclass(made):
        return made
    held = {field.name: _without_lines(getattr(made, field.name)) for field in fields(made)}
    return replace(made, **{**held, **({"where": ""} if isinstance(made, Loss | Backward | Update) else {})})


def _named(check: str, changed: Mapping[str, Any]) -> str:
    return "-".join([check, *changed])
