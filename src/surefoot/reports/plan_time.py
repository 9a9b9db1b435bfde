"""The time and the cost of a plan, as text for a terminal."""

from rich.console import RenderableType
from rich.text import Text

from surefoot.costs.trace_time import OUTSIDE
from surefoot.records.plan import Plan, RunCost
from surefoot.records.step_time import StepTime
from surefoot.reports.parts import table_of
from surefoot.units import between, count_text, counted, money_figure, money_text, seconds_text

MODULES_SHOWN = 8


def step_time_text(plan: Plan) -> list[RenderableType]:
    """How long a step takes, where the time goes, and what the run costs; empty if no time is predicted."""
    time = plan.time
    if time is None:
        return []
    speed = f"{count_text(plan.tokens_per_step / time.seconds)} {plan.unit}s/s{speed_interval(plan)}"
    bounds = ", ".join(f"{name} {share / time.seconds:.0%}" for name, share in _by_size(time.bounds))
    return [
        Text(f"\na step takes about {seconds_text(time.seconds)}{step_interval(time)}: {speed}; bound by {bounds}"),
        *_flops_only(time),
        _table(time),
        *([] if plan.cost is None else [Text(_cost(plan.cost, plan.unit))]),
        *([] if time.interval is None else [Text(f"80%: {time.interval.of}", style="dim")]),
    ]


def step_interval(time: StepTime) -> str:
    """Between which seconds a step falls in four of five cases: ` (80%: 810 ms to 1.1 s)`; empty if it is unknown."""
    if time.interval is None:
        return ""
    return f" (80%: {between(time.interval.low_seconds, time.interval.high_seconds, seconds_text)})"


def speed_interval(plan: Plan) -> str:
    """The same in tokens per second."""
    if plan.time is None or plan.time.interval is None:
        return ""
    slow, fast = plan.time.interval.high_seconds, plan.time.interval.low_seconds
    return f" ({between(plan.tokens_per_step / slow, plan.tokens_per_step / fast, count_text)})"


def cost_interval(cost: RunCost) -> str:
    """Between which days a run ends in four of five cases."""
    low, high = cost.low * cost.seconds, cost.high * cost.seconds
    return "" if low == high else f" (80%: {between(low, high, seconds_text)})"


def dollars_text(cost: RunCost) -> str:
    """The dollars of a run, with their interval; empty if no price is known."""
    if cost.dollars is None:
        return ""
    low, high = cost.low * cost.dollars, cost.high * cost.dollars
    known = money_figure(low) == money_figure(high)
    return money_text(cost.dollars) + ("" if known else f" ({between(low, high, money_figure)})")


def _flops_only(time: StepTime) -> list[RenderableType]:
    if not time.flops_only_seconds:
        return []
    share = time.flops_only_seconds / time.seconds
    return [
        Text(f"model FLOPs at the datasheet's peak would take {seconds_text(time.flops_only_seconds)}: MFU {share:.0%}")
    ]


def _table(time: StepTime) -> RenderableType:
    table = table_of("seconds of a step", "", "share")
    for phase, seconds in _by_size(time.phases):
        table.add_row(phase, seconds_text(seconds), f"{seconds / time.seconds:.0%}")
    for module, seconds in list(_by_size(time.modules))[:MODULES_SHOWN]:
        table.add_row(f"  {module or OUTSIDE}", seconds_text(seconds), f"{seconds / time.seconds:.0%}")
    for collective, seconds in _by_size(time.exposed):
        table.add_row(f"  waiting: {collective}", seconds_text(seconds), f"{seconds / time.seconds:.0%}")
    return table


def _cost(cost: RunCost, unit: str) -> str:
    dollars = f", {dollars_text(cost)}" if cost.dollars is not None else ""
    taken = f"{seconds_text(cost.seconds)}{cost_interval(cost)}"
    energy = "" if cost.kilowatt_hours is None else f", {cost.kilowatt_hours:,.0f} kWh"
    return (
        f"{counted(cost.steps, 'step')}, {counted(cost.tokens, unit)}: {taken} on "
        f"{counted(cost.devices, 'device')}, {cost.device_hours:,.1f} device-hours{dollars}{energy}; "
        f"goodput {cost.goodput:.1%} with {cost.failures:.2g} failures expected"
    )


def _by_size(totals: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(totals.items(), key=lambda item: -item[1])
