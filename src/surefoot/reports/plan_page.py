"""A plan as one HTML page to send to somebody: does it fit, how long does it take, what does it cost, and why."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from surefoot.costs.advice import advise, largest
from surefoot.costs.trace_time import OUTSIDE
from surefoot.records.finding import Finding
from surefoot.records.plan import Plan
from surefoot.records.report import ModuleShare, Report, Sheet
from surefoot.reports.gather import cost_facts
from surefoot.reports.modules import by_module, repeated_as_one
from surefoot.reports.page import write_page
from surefoot.reports.parts import fit_text
from surefoot.reports.plan_io import loader_text, saving_text
from surefoot.reports.plan_time import cost_interval, dollars_text, speed_interval, step_interval
from surefoot.units import bytes_text, count_text, counted, flops_text, seconds_text


def write_plan_page(plan: Plan, file: Path) -> None:
    """Writes the page whole or not at all."""
    write_page(plan_report(plan), file)


def plan_report(plan: Plan) -> Report:
    """The report of a step that nobody has taken yet."""
    sheet = Sheet(
        name=plan.recipe,
        path="",
        headline=plan_headline(plan),
        went_as_planned=None if plan.fit is None else plan.fit.fits,
        first=_change(plan),
        facts=_facts(plan),
        timeline=plan.steady.timeline,
        timeline_of="planned",
        peak=plan.steady.peak,
        phase_seconds={} if plan.time is None else plan.time.phases,
        modules=_modules(plan),
        cost=cost_facts(plan),
        knobs=plan.knobs,
        notes=(*plan.choices, *(f"assumed: {note}" for note in _assumed(plan))),
    )
    return Report(answer=sheet.headline, sheets=(sheet,), made_by=f"surefoot {version('surefoot')}")


def plan_headline(plan: Plan) -> str:
    """The answer in one sentence: whether it fits, how long the run takes and what it costs."""
    parts = [f"needs {bytes_text(plan.steady.peak.peak_bytes)}"]
    if (fit := plan.fit) is not None:
        parts = [fit_text(fit)]
    if plan.cost is not None:
        taken = f"{seconds_text(plan.cost.seconds)}{cost_interval(plan.cost)}"
        parts.append(f"{taken} on {counted(plan.cost.devices, 'device')}")
        parts += [] if plan.cost.dollars is None else [dollars_text(plan.cost)]
    elif plan.time is not None:
        parts.append(f"{seconds_text(plan.time.seconds)}{step_interval(plan.time)} a step")
    return f"{plan.recipe} {'; '.join(parts)}."


def _change(plan: Plan) -> Finding | None:
    """What would lower the peak."""
    holding = largest(plan.steady)
    if holding is None or not (advice := advise(holding)):
        return None
    seen = f"the largest tensor at the peak is {bytes_text(holding.size_bytes)}, {holding.tensor}"
    return Finding("largest tensor", "info", seen, holding.module or holding.phase, f"it is {holding.account}", advice)


def _facts(plan: Plan) -> dict[str, str]:
    facts = {
        "parameters": count_text(plan.parameters),
        f"{plan.unit}s per step": count_text(plan.tokens_per_step),
        "memory peak": bytes_text(plan.steady.peak.peak_bytes),
        "FLOPs of a step": flops_text(plan.steady.tally.total("flops")),
        "checkpoint": bytes_text(plan.checkpoint_bytes),
    }
    if plan.fit is not None:
        facts["on the device"] = f"{bytes_text(plan.fit.total_bytes)} of {bytes_text(plan.fit.memory_bytes)}"
    if plan.time is not None:
        facts["step"] = f"{seconds_text(plan.time.seconds)}{step_interval(plan.time)}"
        facts["speed"] = f"{count_text(plan.tokens_per_step / plan.time.seconds)} {plan.unit}s/s{speed_interval(plan)}"
        if plan.time.flops_only_seconds:
            facts["MFU"] = f"{plan.time.flops_only_seconds / plan.time.seconds:.0%}"
        facts["saving a checkpoint"] = saving_text(plan)
        facts["data"] = loader_text(plan)
    if plan.layout:
        facts["ranks"] = f"one of {plan.ranks:,}: {plan.layout}"
    return {name: fact for name, fact in facts.items() if fact}


def _modules(plan: Plan) -> tuple[ModuleShare, ...]:
    """The memory at the peak and the FLOPs of every module, repeated blocks together."""
    memory, flops = (by_module(plan.steady.tally, name, repeated_as_one) for name in ("memory", "flops"))
    shares = [
        ModuleShare(name or OUTSIDE, int(memory.get(name, 0)), flops.get(name, 0.0), 0.0, 0.0)
        for name in {*memory, *flops}
    ]
    return tuple(sorted(shares, key=lambda each: (-each.memory_bytes, -each.flops, each.module)))


def _assumed(plan: Plan) -> tuple[str, ...]:
    timed = () if plan.time is None else plan.time.assumptions
    return (*timed, *(() if plan.cost is None else plan.cost.assumptions), *plan.assumptions)
