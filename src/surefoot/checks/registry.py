"""Every rule by the name that silences it, and what the rules say of the facts."""

import importlib
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from surefoot.checks.facts import Facts
from surefoot.errors import RecipeError, known_names
from surefoot.records.finding import Finding, Findings

Rule = Callable[..., Iterator[Finding]]
"""A pure function. The annotations of its parameters name the facts it reads."""


def _found() -> Iterator[tuple[str, Rule]]:
    """Yields every rule file that defines a function `check`."""
    for file in sorted(Path(__file__).parent.glob("*/rules/*.py"), key=lambda file: file.stem):
        module = f"{__package__}.{file.parts[-3]}.rules.{file.stem}"
        check = getattr(importlib.import_module(module), "check", None)
        if check is not None:
            yield file.stem.replace("_", "-"), check


CHECKS: dict[str, Rule] = dict(_found())
"""Every check by the name that silences it."""

EXPLAINS: dict[str, tuple[str, ...]] = {
    name: getattr(sys.modules[check.__module__], "EXPLAINS", ()) for name, check in CHECKS.items()
}
"""One cause, one finding: if a check reports something, the checks that it explains are skipped as symptoms."""


def subject_of(check: str) -> str:
    """The folder of a check: `losses`, `samples` and so on."""
    return CHECKS[check].__module__.split(".")[-3]


def allowed_checks(names: Iterable[str]) -> tuple[str, ...]:
    """The given names of checks. Raises if one is unknown."""
    allowed = tuple(names)
    for name in allowed:
        if name not in CHECKS:
            raise RecipeError(f"no check is called {name!r}; {known_names(name, CHECKS)}")
    return allowed


@cache
def facts_of(check: Rule) -> tuple[type, ...]:
    """The classes of the facts that a rule reads, in the order of its parameters."""
    return tuple(kind for name, kind in typing.get_type_hints(check).items() if name != "return")


def judged(check: Rule, facts: Facts) -> Iterator[Finding]:
    """The findings of one rule."""
    return check(*(facts[kind] for kind in facts_of(check)))


def run_checks(facts: Facts, *, recipe: str, allow: Iterable[str] = ()) -> Findings:
    """All findings, errors first. Skips findings of allowed checks and symptoms of other findings."""
    allowed = allowed_checks(allow)
    found = [each for check in CHECKS.values() for each in judged(check, facts)]
    explained = {name for each in found for name in EXPLAINS.get(each.check, ())}
    found = [each for each in found if each.check not in explained and each.check not in allowed]
    order = ("error", "warning", "info")
    found = [replace(each, where=_place(each.where)) for each in found]
    found.sort(key=lambda finding: order.index(finding.severity))
    return Findings(recipe, tuple(CHECKS), tuple(found), allowed)


def _place(where: str) -> str:
    """A place as a reader understands it: `1` alone, the name of a layer of an `nn.Sequential`, reads like a count."""
    return f"module {where}" if re.fullmatch(r"\d+(\.\w+)*", where) else where
