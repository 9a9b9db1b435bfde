"""Gradient of each loss term: how much of what is learned comes from which term, and which modules it reaches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from surefoot.debug.probe.order import Term
from surefoot.debug.probe.results import Results, Verdict
from surefoot.records.finding import Finding
from surefoot.records.probed import Experiment

NAME = "gradient of each loss term"
NOTHING = 1e-6
"""The share of the gradient below which a term changes float32 weights by rounding at most."""
AGAINST = -0.2
"""The cosine below which terms are said to pull against each other."""
SHOWN = 4


def terms(results: Results) -> Verdict:
    """The share of each term in the last update that was measured; a term that never gave anything."""
    base = results.base
    if results.look.facts.get("optimizers", 1) > 1:
        return Verdict(Experiment(NAME, "not tried", "two optimizers take turns, each with a loss of its own"))
    if base is None or base.error or not base.terms:
        why = base.error or base.no_terms if base is not None else "it did not run"
        return Verdict(Experiment(NAME, "not tried", why or "no backward of one number was seen"))
    updates = _by_update(base.terms)
    last = updates[max(updates)]
    if len(last) == 1:
        return Verdict(Experiment(NAME, "as expected", "the loss is one term"))
    whole = sum(each.length for each in last)
    figures = {f"{each.name}: share": round(each.length / whole, 6) if whole else 0.0 for each in last}
    seen = _told(last, whole)
    idle = _idle(list(updates.values()))
    if not idle:
        return Verdict(Experiment(NAME, "as expected", seen, figures))
    return Verdict(Experiment(NAME, "finding", seen, figures), _finding(idle[0], sorted(updates)))


def _by_update(terms: Sequence[Term]) -> dict[int, list[Term]]:
    found: dict[int, list[Term]] = defaultdict(list)
    for each in terms:
        found[each.update].append(each)
    return found


def _told(terms: Sequence[Term], whole: float) -> str:
    """The shares of the longest terms, what they do not reach, and what pulls against the others."""
    reached = {name for each in terms for name, length in each.modules.items() if length}
    parts = []
    for each in sorted(terms, key=lambda each: -each.length)[:SHOWN]:
        own = [name for name, length in each.modules.items() if length]
        only = f" (only {', '.join(own[:2])})" if own and len(own) < len(reached) and len(own) <= 2 else ""
        against = (
            f" (against the others: cosine {each.along:.2f})" if each.along is not None and each.along < AGAINST else ""
        )
        parts.append(f"{each.name} {each.length / whole if whole else 0:.3g}{only}{against}")
    more = f", {len(terms) - SHOWN} more" if len(terms) > SHOWN else ""
    return "shares of the gradient: " + ", ".join(parts) + more


def _idle(updates: Sequence[Sequence[Term]]) -> list[Term]:
    """The terms that gave next to nothing in every update that was measured, of at least two."""
    small: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for measured in updates:
        whole = sum(each.length for each in measured)
        for each in measured:
            small[each.where, each.name].append(each.length <= NOTHING * whole)
    kept = [each for each in updates[-1] if all(small[each.where, each.name])]
    return kept if len(updates) > 1 and len(kept) < len(updates[-1]) else []


def _finding(term: Term, updates: Sequence[int]) -> Finding:
    listed = ", ".join(map(str, updates[:-1])) + f" and {updates[-1]}"
    given = "no parameter got a gradient from it" if not term.length else f"its gradient was {term.length:.2g} long"
    return Finding(
        "loss-term-without-effect",
        "info",
        f"the term `{term.name}` of the loss changed nothing in updates {listed}: {given}",
        term.where,
        "it is computed and added, and training is the same without it, unless it begins to act later",
        "see whether its factor is 0, whether a clamp, relu or margin is at its end, and whether it is computed from "
        "outputs of the model or from copies of them",
    )
