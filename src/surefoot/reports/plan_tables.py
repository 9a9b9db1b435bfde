"""The tables of a plan: memory, FLOPs and time by account, phase and module, traffic, and the allocator on a GPU."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from surefoot.costs.advice import advise, largest
from surefoot.costs.conventions import CONVENTIONS
from surefoot.records.plan import Fit, Plan
from surefoot.records.usage import Peak, Usage
from surefoot.reports.parts import table_of, title
from surefoot.reports.plan_io import loader_note, saving_text
from surefoot.reports.plan_time import step_time_text
from surefoot.reports.usage import usage_text
from surefoot.units import bytes_text, count_text, flops_text


def plan_tables(plan: Plan) -> list[RenderableType]:
    """Everything that was counted, and what surefoot chose for this model."""
    return [
        Text(),
        _headline(plan.recipe, plan.steady),
        *(Text(said, style="yellow") for said in plan.script),
        Text(),
        title(plan.recipe, plan.knobs, plan.about),
        usage_text(plan.first, plan.steady, around=_around(plan), absent=_absent(plan)),
        *_traffic(plan),
        *_conventions(plan),
        *_reserved(plan),
        *step_time_text(plan),
        Text(f"{_held_of_a_checkpoint(plan)}; staging one takes as much host memory again{_written(plan)}"),
        *([Text(loader_note(plan))] if plan.loader else []),
        *map(Text, plan.choices),
        *([Text(f"traced: {plan.blocks}", style="dim")] if plan.blocks else []),
    ]


def _headline(name: str, usage: Usage) -> RenderableType:
    """The answer in one line: the peak of memory, the largest tensor at that moment, and what to do about it."""
    said = f"{bytes_text(usage.peak.peak_bytes)} at the peak"
    holding = largest(usage)
    if holding is not None:
        made = f" of {holding.operator}" if holding.operator else ""
        inside = f" in {holding.module or holding.phase}"
        said += f"; largest is {bytes_text(holding.size_bytes)}, {holding.tensor}{made}{inside} ({holding.account})"
        said += f": {advise(holding)}" if advise(holding) else ""
    return Text.assemble((name, "bold"), ": ", said)


def _around(plan: Plan) -> dict[str, Peak]:
    """The peaks before and after the steps."""
    found = {"init": plan.init, "evaluate": plan.evaluate, "resume": plan.resume}
    return {name: usage.peak for name, usage in found.items() if usage.peak.peak_bytes}


def _absent(plan: Plan) -> dict[str, str]:
    if plan.evaluate.peak.peak_bytes or plan.script:
        return {}
    return {"evaluate": "not planned: the recipe has no evaluation"}


def _traffic(plan: Plan) -> list[RenderableType]:
    """Every collective of a steady step, and the FLOPs that can overlap with it."""
    tally = plan.steady.tally
    table = table_of("collective", "over", "in", "times", "bytes", "can overlap")
    for each in (account for account in tally.accounts if account.name.startswith("collectives/")):
        _, place = each.name.split("/", 1)
        size, beside = tally.total(f"traffic/{place}"), tally.total(f"overlap/{place}")
        table.add_row(*place.split("/"), count_text(each.amount), bytes_text(size), flops_text(beside))
    return [Text("\ntraffic of one rank", style="bold"), table] if table.row_count else []


def _conventions(plan: Plan) -> list[RenderableType]:
    """FLOPs per token: as counted, and by the formulas that other projects use for their MFU."""
    if len(plan.flops_per_token) < 2:
        return []
    table = table_of(f"FLOPs per {plan.unit}", "", "formula")
    table.columns[2].justify = "left"
    for name, amount in plan.flops_per_token.items():
        rule = CONVENTIONS.get(name)
        told = f"{rule.formula}: {rule.used_by}" if rule else "this plan, without recomputation"
        table.add_row(name, flops_text(amount), told)
    return [Text(), table]


def _reserved(plan: Plan) -> list[RenderableType]:
    """What torch's allocator would reserve on a GPU for these tensors."""
    if not plan.reserved_bytes:
        return []
    if plan.fit is not None:
        return [_on_device(plan, plan.fit)]
    classic, expandable = (bytes_text(plan.reserved_bytes[name]) for name in ("classic", "expandable"))
    said = f"for these tensors a GPU would reserve {classic}, with expandable segments {expandable}"
    return [Text(f"\n{said} (modelled; without the GPU's own workspaces)")]


def _on_device(plan: Plan, fit: Fit) -> RenderableType:
    """The three numbers: the bytes in use, the bytes that the allocator reserves, the bytes taken from the device."""
    classic, expandable = (bytes_text(plan.reserved_bytes[name]) for name in ("classic", "expandable"))
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=12)
    table.add_column(justify="right", min_width=12)
    table.add_column()
    table.add_row("live", bytes_text(plan.live_bytes), "tensors and workspaces at the highest peak")
    table.add_row("reserved", classic, f"by torch's caching allocator, modelled; {expandable} with expandable segments")
    table.add_row("device", bytes_text(fit.total_bytes), f"with {bytes_text(fit.context_bytes)} of CUDA context")
    return Group(Text(f"\non {fit.device}", style="bold"), Padding(table, (0, 0, 0, 2), expand=False))


def _held_of_a_checkpoint(plan: Plan) -> str:
    held = bytes_text(plan.state_bytes)
    if not plan.layout:
        return f"a checkpoint holds {held}"
    return f"this rank holds {held} of a checkpoint of {bytes_text(plan.checkpoint_bytes)}"


def _written(plan: Plan) -> str:
    times = saving_text(plan)
    return f"; writing it takes {times}, and only the staging stops the run" if times else ""
