"""A profile as text: where the time went, the ledger, what to change first; and a comparison of two recipes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.costs.diagnosis import Signs, diagnose
from surefoot.costs.module_shares import bound, module_shares, operator_seconds, seen_ceilings
from surefoot.records.ledger import Ledger
from surefoot.records.profile import Comparison, Profile
from surefoot.records.report import ModuleShare
from surefoot.reports.gather import signs_of
from surefoot.reports.ledger import ledger_text
from surefoot.reports.parts import finding_text, table_of, title
from surefoot.units import counted, flops_text, seconds_text

MODULES_SHOWN = 8


def profile_text(profile: Profile, ledger: Ledger) -> RenderableType:
    """Where the time went, the ledger of plan and measurement, and what to change first."""
    seconds = profile.mean_step_seconds
    spread = f"{seconds_text(min(profile.step_seconds))} to {seconds_text(max(profile.step_seconds))}"
    return Group(
        title(profile.recipe, profile.knobs),
        Text(f"\nstep {seconds_text(seconds)} ({profile.timed_steps} steps, {spread}) on {profile.device}"),
        *_waits(profile),
        *_spent(profile),
        Text(),
        ledger_text(ledger),
        Text(f"\n{_rate(profile)}"),
        *(Text(f"graph break at {each}", style="yellow") for each in profile.graph_breaks),
        _mfu(profile),
        *changes_text(signs_of(profile)),
    )


def _rate(profile: Profile) -> str:
    flops, seconds = profile.steady.tally.total("flops"), profile.mean_step_seconds
    return f"{flops_text(flops / seconds)}/s = {flops_text(flops)} counted per step / {seconds_text(seconds)}"


def _mfu(profile: Profile) -> RenderableType:
    if profile.mfu is None or profile.peak_flops is None:
        return Text(f"MFU: none, since there is no datasheet peak for {profile.device!r}", style="dim")
    needed, seconds = flops_text(profile.model_flops), seconds_text(profile.mean_step_seconds)
    peak = f"{flops_text(profile.peak_flops)}/s dense"
    return Text(f"MFU {profile.mfu:.1%} = {needed} that the model needs / {seconds} / {peak}")


def _waits(profile: Profile) -> list[RenderableType]:
    """Lines on waiting for data and for the device."""
    syncs = {name: amount for name, amount in profile.counted.under("syncs").items() if amount}
    asked = ", ".join(f"{amount:.0f} in {phase}" for phase, amount in syncs.items()) or "none"
    waited = seconds_text(profile.waiting * profile.mean_step_seconds)
    lines = [f"waiting for data {waited} ({profile.waiting:.1%}); host asks the device for a value: {asked}"]
    if profile.recompilations:
        lines.append(f"{counted(profile.recompilations, 'graph')} compiled again after the first step")
    return [Text(line) for line in lines]


def _spent(profile: Profile) -> list[RenderableType]:
    """Time by phase, module and operator, and what limits each module."""
    if not profile.traced.accounts:
        return []
    shares = module_shares(profile)
    roof = seen_ceilings(shares)
    judged = [replace(each, bound=bound(each, roof)) for each in shares]
    longer = profile.traced_over_timed or math.nan
    note = f"shares by torch.profiler, under which a step took {longer:.2f} times as long"
    where = where_text(profile.traced.under("time"), judged, operator_seconds(profile))
    return [*where, Text(note, style="dim")]


def where_text(
    phases: Mapping[str, float], shares: Sequence[ModuleShare], operators: Mapping[str, float]
) -> list[RenderableType]:
    """Seconds by phase, by module with its limit, and by operator."""
    total = sum(phases.values())
    by_phase = Text("  ".join(f"{name} {amount / total:.0%}" for name, amount in by_amount(phases)))
    by_module = table_of("module", "time", "", "FLOP/byte", "limited by")
    for each in shares[:MODULES_SHOWN]:
        intensity = f"{each.flops / each.moved_bytes:.1f}" if each.moved_bytes else "-"
        share = f"{each.seconds / total:.1%}"
        by_module.add_row(each.module, seconds_text(each.seconds), share, intensity, each.bound)
    by_operator = table_of("operator", "time", "")
    for name, amount in list(operators.items())[:MODULES_SHOWN]:
        by_operator.add_row(name, seconds_text(amount), f"{amount / total:.1%}")
    return [by_phase, Text(), by_module, Text(), by_operator]


def by_amount(amounts: Mapping[str, float]) -> list[tuple[str, float]]:
    """The largest first."""
    return sorted(amounts.items(), key=lambda item: -item[1])


def changes_text(signs: Signs) -> list[RenderableType]:
    """The findings from the records; the first one to fix comes first."""
    return [Text(), *(finding_text(finding) for finding in diagnose(signs))]


def comparison_text(found: Comparison) -> RenderableType:
    """How much faster or slower, with the confidence interval."""
    sides = table_of("", "median step", "rounds")
    for name, seconds in ((found.before, found.before_seconds), (found.after, found.after_seconds)):
        sides.add_row(name, seconds_text(median(seconds)), str(len(seconds)))
    interval = f"{found.confidence:.0%} sure of {found.low:.3f} to {found.high:.3f}"
    if not found.differs:
        said = f"no measurable difference: {found.ratio:.3f} times the seconds, {interval}"
    else:
        word = "faster" if found.ratio < 1 else "slower"
        said = f"{abs(1 - found.ratio):.1%} {word}: {found.ratio:.3f} times the seconds, {interval}"
    return Group(sides, Text(said, style="bold"))
