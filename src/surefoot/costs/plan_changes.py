"""Plan changes: compares two plans, and names the parts that make up the difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from surefoot.records.plan import Plan
from surefoot.records.plan_changes import Change, PlanChanges, Turned
from surefoot.units import amount_text

PARTS_NAMED = 3


def changes_between(before: Plan, after: Plan) -> PlanChanges:
    """All differences between two plans."""
    changes = tuple(_changes(before, after))
    return PlanChanges(
        before=_named(before),
        after=_named(after),
        turned=tuple(_turned(before, after)),
        changes=changes,
        reasons=tuple(
            filter(None, (_reason(changes, "memory"), _reason(changes, "flops"), _reason(changes, "seconds")))
        ),
    )


def _named(plan: Plan) -> str:
    where = f" on {plan.fit.device}" if plan.fit else ""
    return f"{plan.recipe}{where}" + (f", {plan.ranks:,} ranks" if plan.ranks > 1 else "")


def _turned(before: Plan, after: Plan) -> Iterator[Turned]:
    for name in {**before.knobs, **after.knobs}:
        one, other = before.knobs.get(name), after.knobs.get(name)
        if one != other:
            yield Turned(name, one, other)
    where = [plan.fit.device if plan.fit else "cpu" for plan in (before, after)]
    for name, one, other in (
        ("recipe", before.recipe, after.recipe),
        ("device", *where),
        ("ranks", before.ranks, after.ranks),
        ("layout", before.layout, after.layout),
        ("micro-batches", before.micro_batches, after.micro_batches),
    ):
        if one != other:
            yield Turned(name, one, other)


def _changes(before: Plan, after: Plan) -> Iterator[Change]:
    yield Change("parameters", "parameters", before.parameters, after.parameters)
    yield Change("tokens per step", "tokens", before.tokens_per_step, after.tokens_per_step)
    for account, unit, get in (
        ("memory", "bytes", _memory),
        ("flops", "FLOP", _flops),
        ("seconds", "seconds", _seconds),
    ):
        one, other = get(before), get(after)
        for part in {**one, **other}:
            name = f"{account}/{part}" if part else account
            yield Change(name, unit, *(_amount(parts, part) for parts in (one, other)))
    yield Change("device memory", "bytes", *(plan.fit.total_bytes if plan.fit else None for plan in (before, after)))
    for name, unit in (("days", "days"), ("dollars", "dollars")):
        yield Change(name, unit, *(getattr(plan.cost, name) if plan.cost else None for plan in (before, after)))


def _amount(parts: Mapping[str, float], part: str) -> float | None:
    """The amount of a part; 0 if the plan has only the whole, None if it has neither."""
    return parts.get(part, 0) if parts else None


def _memory(plan: Plan) -> dict[str, float]:
    return {"": plan.steady.peak.peak_bytes, **_by_size(plan.steady.tally.under("memory"))}


def _flops(plan: Plan) -> dict[str, float]:
    return {"": plan.steady.tally.total("flops"), **_by_size(plan.steady.tally.under("flops"))}


def _seconds(plan: Plan) -> dict[str, float]:
    return {} if plan.time is None else {"": plan.time.seconds, **_by_size(plan.time.phases)}


def _by_size(parts: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(parts.items(), key=lambda item: -item[1]))


def _reason(changes: tuple[Change, ...], account: str) -> str:
    """The largest parts of an account's difference; empty if there is no difference."""
    whole = next((each for each in changes if each.account == account), None)
    if whole is None or not whole.difference:
        return ""
    parts = [each for each in changes if each.account.startswith(f"{account}/") and each.difference]
    parts.sort(key=lambda each: -abs(each.difference or 0))
    said = ", ".join(f"{each.account.partition('/')[2]} {_signed(each)}" for each in parts[:PARTS_NAMED])
    more = len(parts) - PARTS_NAMED
    return f"{account} {_signed(whole)}: {said}" + (f", and {more} more" if more > 0 else "")


def _signed(change: Change) -> str:
    difference = change.difference or 0
    return f"{'+' if difference > 0 else '-'}{amount_text(abs(difference), change.unit)}"
