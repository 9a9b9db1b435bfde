"""A plan in fifteen lines: does it fit, what takes the memory, the time and money, what to change, how sure this is."""

from __future__ import annotations

import textwrap

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surefoot.costs.advice import first_change
from surefoot.records.plan import Plan, RunCost
from surefoot.reports.memory_bar import memory_bar
from surefoot.reports.parts import fit_text, host_text
from surefoot.reports.plan_io import checkpoint_text, loader_text
from surefoot.reports.plan_sure import all_assumptions, sure_of
from surefoot.reports.plan_tables import plan_tables
from surefoot.units import bytes_text, count_text, counted, money_estimate, seconds_estimate, short_count

TWO_LINES = 158
"""Characters of a line that says what the plan did not look at; `--tables` has all of it."""


def plan_text(plan: Plan, *, tables: bool = False, assumed: bool = False) -> RenderableType:
    """The answer first; with `tables` everything that was counted, with `assumed` everything that was assumed."""
    return Group(
        _verdict(plan),
        *(Text(textwrap.shorten(said, TWO_LINES, placeholder=" ..."), style="yellow") for said in _not_seen(plan)),
        Text(
            f"{counted(plan.parameters, 'parameter')}, {counted(plan.tokens_per_step, plan.unit)} per step "
            f"in {counted(plan.micro_batches, 'micro-batch')}"
            + (f", {counted(plan.steps, 'step')}" if plan.steps is not None else "")
        ),
        *([Text(f"one of {plan.ranks:,} ranks: {plan.layout}")] if plan.layout else []),
        Text(),
        _answers(plan, more="" if tables and assumed else _more(plan, tables=tables, assumed=assumed)),
        *(plan_tables(plan) if tables else []),
        *(Text(f"assumed: {note}", style="yellow") for note in (all_assumptions(plan) if assumed else ())),
    )


def _verdict(plan: Plan) -> RenderableType:
    """Whether the step fits the GPU, and by how much."""
    fit = plan.fit
    if fit is None:
        needs = f" takes {bytes_text(plan.steady.peak.peak_bytes)} at the peak of a step"
        return Text.assemble((plan.recipe, "bold"), needs, "" if plan.time else "; add --on h100 for a GPU")
    if plan.host is not None and not plan.host.fits:
        return Text.assemble((plan.recipe, "bold"), " ", ("does not fit its host", "bold red"), f": {host_text(plan)}")
    only = " with expandable segments only" if fit.fits and fit.allocator == "expandable" else ""
    most = "up to " if plan.compiled_bytes is not None else ""
    needs = f": it takes {most}{bytes_text(fit.total_bytes)} of {bytes_text(fit.memory_bytes)}{_decided_before(plan)}"
    return Text.assemble(
        (plan.recipe, "bold"), " ", (fit_text(fit) + only, "bold green" if fit.fits else "bold red"), needs
    )


def _decided_before(plan: Plan) -> str:
    """The verdict is about the whole run: it names the phase of its peak, if that is not a steady step."""
    when, _ = _before_steady(plan)
    return f", most {when}" if when else ""


def _before_steady(plan: Plan) -> tuple[str, int]:
    """What takes clearly more than a steady step, and its bytes. Empty if nothing does."""
    before = {"while the model is built": plan.init, "in the first step": plan.first}
    when, most = max(((name, usage.peak.peak_bytes) for name, usage in before.items()), key=lambda pair: pair[1])
    return (when, most) if most > 1.02 * plan.steady.peak.peak_bytes else ("", 0)


def _not_seen(plan: Plan) -> list[str]:
    """What the numbers leave out or what exceeds them: it must not be overlooked."""
    higher = {
        name: usage.peak.peak_bytes
        for name, usage in {"an evaluation": plan.evaluate, "a resume": plan.resume}.items()
        if usage.peak.peak_bytes > plan.live_bytes
    }
    return [
        *plan.without,
        *plan.steps_differ,
        *plan.no_resume,
        *plan.script,
        *(f"not counted: {note}" for note in plan.left_out),
        *(f"not in this verdict: {name} takes {bytes_text(size)}" for name, size in higher.items()),
    ]


def _answers(plan: Plan, *, more: str) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column()
    for label, answer in (
        ("memory", _memory(plan)),
        ("host", host_text(plan)),
        ("step", _step(plan)),
        ("run", _run(plan)),
        ("data", loader_text(plan)),
        ("save", checkpoint_text(plan) if plan.time and not plan.script else ""),
        ("change", first_change(plan)),
        ("sure", sure_of(plan)),
        ("more", more),
    ):
        if answer:
            table.add_row(label, answer)
    return table


def _memory(plan: Plan) -> RenderableType:
    peak = plan.steady.peak
    inside = f" of {peak.module}" if peak.module else ""
    lines = [Text(f"{bytes_text(peak.peak_bytes)} of tensors at the peak, in {peak.phase}{inside}")]
    when, most = _before_steady(plan)
    if when:
        lines.append(Text(f"{bytes_text(most)} {when}: more than any later step takes", style="yellow"))
    if plan.compiled_bytes is not None:
        low, high = map(bytes_text, plan.compiled_bytes)
        lines.append(Text(f"as written; compiled, {low} to {high} of the card in 4 of 5 cases"))
    return Group(*lines, *memory_bar(plan))


def _step(plan: Plan) -> str:
    time = plan.time
    if time is None:
        return ""
    ends = (time.interval.low_seconds, time.interval.high_seconds) if time.interval is not None else None
    share = f", MFU {time.flops_only_seconds / time.seconds:.0%}" if time.flops_only_seconds else ""
    bound, seconds = max(time.bounds.items(), key=lambda item: item[1], default=("", 0.0))
    limit = f"; {seconds / time.seconds:.0%} of it {bound}" if bound else ""
    speed = f"{count_text(float(f'{plan.tokens_per_step / time.seconds:.3g}'))} {plan.unit}s/s"
    return f"{seconds_estimate(time.seconds, ends)}: {speed}{share}{limit}"


def _run(plan: Plan) -> str:
    cost = plan.cost
    if cost is None:
        return ""
    ends = (cost.low * cost.seconds, cost.high * cost.seconds) if cost.low != cost.high else None
    parts = [f"{seconds_estimate(cost.seconds, ends)} on {counted(cost.devices, 'device')}", *_money(cost)]
    return f"{counted(cost.steps, 'step')}, {short_count(cost.tokens)} {plan.unit}s: {', '.join(parts)}"


def _money(cost: RunCost) -> list[str]:
    return [] if cost.dollars is None else [money_estimate(cost.dollars, (cost.low, cost.high))]


def _more(plan: Plan, *, tables: bool, assumed: bool) -> str:
    """Where the rest is."""
    count = 0 if assumed else len(all_assumptions(plan))
    parts = [] if tables else ["--tables (all that was counted)"]
    parts += [f"--assumed ({counted(count, 'assumption')})"] if count else []
    return ", ".join([*parts, "--html FILE"])
