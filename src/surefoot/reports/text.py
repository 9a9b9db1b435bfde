"""Records as text for a terminal."""

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from surefoot.costs.advice import advise, largest
from surefoot.costs.conventions import CONVENTIONS
from surefoot.costs.diagnosis import diagnose, said_once
from surefoot.records.audit import Audit
from surefoot.records.export import Export, Weights
from surefoot.records.finding import Findings
from surefoot.records.log import LogRow
from surefoot.records.plan import Fit, Plan
from surefoot.records.report import Report
from surefoot.records.run import Run
from surefoot.records.tally import Tally
from surefoot.records.units import amount_text, bytes_text, count_text, counted, flops_text, seconds_text
from surefoot.records.usage import Peak, Usage
from surefoot.records.watched import Watched
from surefoot.reports.console import PlainConsole
from surefoot.reports.data import token_ledger_text
from surefoot.reports.gather import signs_of_watched
from surefoot.reports.ledger import ledger_text
from surefoot.reports.live import held_out_text
from surefoot.reports.parts import finding_text, table_of, title
from surefoot.reports.plan_time import step_time_text
from surefoot.reports.profile import by_amount, changes_text, where_text

PHASES = ("init", "resume", "load", "forward", "loss", "backward", "update", "evaluate")
MODULES_SHOWN = 8


def plan_text(plan: Plan) -> RenderableType:
    """What a step will take: memory first, since it decides whether the run starts at all."""
    return Group(
        *_verdict(plan),
        _headline(plan.recipe, plan.steady),
        Text(),
        title(plan.recipe, plan.knobs, plan.about),
        Text(
            f"{counted(plan.parameters, 'parameter')}, {counted(plan.tokens_per_step, 'token')} per step "
            f"in {counted(plan.micro_batches, 'micro-batch')}"
            + (f", {counted(plan.steps, 'step')}" if plan.steps is not None else "")
        ),
        *([Text(f"one of {plan.ranks:,} ranks: {plan.layout}")] if plan.layout else []),
        _usage_text(plan.first, plan.steady, around=_around(plan)),
        *_traffic(plan),
        *_conventions(plan),
        *_reserved(plan),
        *step_time_text(plan),
        Text(f"{_held_of_a_checkpoint(plan)}; staging one takes as much host memory again"),
        *map(Text, plan.choices),
        *([Text(f"traced: {plan.blocks}", style="dim")] if plan.blocks else []),
        *(Text(f"assumed: {note}", style="yellow") for note in plan.assumptions),
    )


def _held_of_a_checkpoint(plan: Plan) -> str:
    held = bytes_text(plan.state_bytes)
    if not plan.layout:
        return f"a checkpoint holds {held}"
    return f"of a checkpoint of {bytes_text(plan.checkpoint_bytes)}, this rank holds {held}"


def report_text(report: Report, runs: Sequence[Run]) -> RenderableType:
    """The answer, then each run, its ledger and what was found."""
    parts: list[RenderableType] = []
    for sheet in report.sheets:
        parts += [Text()] if parts else []
        change = "nothing to change first" if sheet.first is None else f"change first: {sheet.first.remedy}"
        parts.append(Text(f"{sheet.headline} {change.capitalize()}.", style="bold"))
        parts += [run_text(run) for run in runs if run.path == sheet.path]
        if sheet.modules:
            step = f"\nprofiled step {seconds_text(sum(sheet.phase_seconds.values()))}"
            parts += [Text(step, style="bold"), *where_text(sheet.phase_seconds, sheet.modules, sheet.operators)]
        parts += [Text(), ledger_text(sheet.ledger)] if sheet.ledger.entries else []
        found = sheet.findings.findings if sheet.findings else ()
        parts += [Text(), *(finding_text(finding) for finding in found)] if found else []
    return Group(*parts)


def findings_text(findings: Findings, *, costs: int = 0) -> RenderableType:
    """Every finding with its remedy; one line if there is none. So many `costs` have been told before them."""
    if findings.failure:
        told = f"{findings.recipe}: the checks say nothing, for surefoot failed: {findings.failure}."
        return Text(f"{told} SUREFOOT_RAISE=1 raises it with its traceback; please report it.", style="red")
    looked = [name for name in findings.checks if name not in findings.allowed]
    allowed = f" Allowed: {', '.join(findings.allowed)}." if findings.allowed else ""
    name = f"{findings.recipe}: " + (f"{counted(costs, 'cost')} named above; " if costs else "")
    if not findings.findings:
        return Text(f"{name}nothing found by {counted(len(looked), 'check')}.{allowed}", style="green")
    found = counted(len(findings.findings), "finding")
    count = f"{name}{found} by {counted(len(looked), 'check')}.{allowed}"
    return Group(*(finding_text(finding) for finding in findings.findings), Text(count))


def run_text(run: Run) -> RenderableType:
    """What a run has done, and its loss from first to last."""
    table = table_of("step", "loss", "held-out", "grad norm", "lr", "tokens/s", "data")
    for row in _spread(run.rows(), 12):
        table.add_row(
            str(row.step),
            _or_dash(row.loss, ".4f"),
            "-" if row.evaluation_loss is None else held_out_text(run, row.evaluation_loss),
            _or_dash(row.grad_norm, ".3f"),
            f"{row.lr:.3g}",
            f"{row.tokens / row.seconds:,.0f}",
            f"{row.data_seconds / row.seconds:.0%}",
        )
    events = run.happened()
    return Group(
        title(run.recipe, run.knobs, run.about),
        Text(
            f"{run.status} after {run.steps} steps, {count_text(run.tokens)} tokens, {seconds_text(run.seconds)} "
            f"on {run.device} with torch {run.torch_version}; {count_text(run.parameters)} parameters"
        ),
        *([Text(run.reason, style="red")] if run.reason else []),
        *map(Text, run.choices),
        table,
        Text(_loss_line(run)),
        *([] if run.token_ledger is None else [token_ledger_text(run.token_ledger, run.parameters)]),
        *(Text(f"{event.at}  after step {event.step}  {event.kind}: {event.text}") for event in events[-8:]),
        Text(f"run: {run.path}", style="dim"),
    )


def _or_dash(number: float | None, form: str) -> str:
    return "-" if number is None else format(number, form)


def export_text(export: Export) -> RenderableType:
    """The files, and the proof that they compute the same."""
    table = table_of("file", "size", "difference to the trained model")
    table.add_row(export.weights, bytes_text(export.weights_bytes), f"{export.weights_difference:.2g}")
    table.add_row(export.program, bytes_text(export.program_bytes), f"{export.program_difference:.2g}")
    batch = "a batch of any size" if export.dynamic_batch else "this batch size only"
    return Group(
        table,
        Text(f"read back and compared on {', '.join(export.inputs)}; tolerance {export.tolerance:.0e}, relative"),
        Text(f"the program takes {batch}"),
    )


def weights_text(weights: Weights) -> RenderableType:
    """The files of a set, and what they hold."""
    files = Text("\n".join(weights.files))
    size = bytes_text(weights.total_bytes)
    damaged = [Text(f"passed over, because it is damaged: {each}", style="red") for each in weights.passed_over]
    return Group(files, Text(f"{weights.tensors} tensors, {size}, of step {weights.step} of {weights.run}"), *damaged)


def audit_text(audit: Audit) -> RenderableType:
    """Whether steps that were taken again made the same state, or what differs."""
    steps = f"steps {audit.from_step + 1} to {audit.to_step} of {audit.run}, taken again"
    if not audit.differing:
        return Text(f"{steps}: the same state, bit for bit")
    shown = ", ".join(audit.differing[:5])
    return Text(
        f"{steps}: {len(audit.differing)} parts of the checkpoint differ: {shown}\n"
        "A bit flipped in memory, or the code is not deterministic; go back to the checkpoint before.",
        style="red",
    )


def watched_text(watched: Watched) -> RenderableType:
    """What an unchanged script took, and what the checks say of it."""
    seen = f"{watched.script}: {counted(watched.steps, 'step')} of {', '.join(watched.models) or 'no model'}"
    parts: list[RenderableType] = [Text(seen, style="bold")]
    if watched.first is None or watched.steady is None:
        parts.append(Text("no optimizer made an update, so no step was booked", style="yellow"))
    else:
        parts.append(Text(f"{count_text(watched.parameters)} parameters"))
        parts.append(_usage_text(watched.first, watched.steady))
        parts += _pace(watched)
    signs = signs_of_watched(watched)
    diagnosed = diagnose(signs)
    beside = replace(watched.findings, findings=said_once(watched.findings.findings, diagnosed))
    return Group(*parts, *changes_text(signs), findings_text(beside, costs=len(diagnosed)))


def _pace(watched: Watched) -> list[RenderableType]:
    """How long the steps took that were not booked, by phase."""
    if not watched.step_seconds:
        return []
    seconds = sum(watched.step_seconds) / len(watched.step_seconds)
    shares = "  ".join(f"{name} {amount / seconds:.0%}" for name, amount in by_amount(watched.clock.under("seconds")))
    return [Text(f"\nstep {seconds_text(seconds)}  {shares}")]


def as_text(renderable: RenderableType, *, width: int = 100) -> str:
    """Plain text without colour, for files and tests."""
    console = PlainConsole(width=width, no_color=True, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _conventions(plan: Plan) -> list[RenderableType]:
    """FLOPs per token, counted and by the formulas that others print their MFU with."""
    if len(plan.flops_per_token) < 2:
        return []
    table = table_of("FLOPs per token", "", "formula")
    table.columns[2].justify = "left"
    for name, amount in plan.flops_per_token.items():
        rule = CONVENTIONS.get(name)
        told = f"{rule.formula}: {rule.used_by}" if rule else "this plan, without recomputation"
        table.add_row(name, flops_text(amount), told)
    return [Text(), table]


def _traffic(plan: Plan) -> list[RenderableType]:
    """Every collective of a steady step, and what can be computed beside it."""
    tally = plan.steady.tally
    table = table_of("collective", "over", "in", "times", "bytes", "beside it")
    for each in (account for account in tally.accounts if account.name.startswith("collectives/")):
        _, place = each.name.split("/", 1)
        size, beside = tally.total(f"traffic/{place}"), tally.total(f"overlap/{place}")
        table.add_row(*place.split("/"), count_text(each.amount), bytes_text(size), flops_text(beside))
    return [Text("\ntraffic of one rank", style="bold"), table] if table.row_count else []


def _verdict(plan: Plan) -> list[RenderableType]:
    """Whether it fits the GPU, and by how much."""
    fit = plan.fit
    if fit is None:
        return []
    by = bytes_text(abs(fit.memory_bytes - fit.total_bytes))
    said = f"fits {fit.device}, {by} to spare" if fit.fits else f"does not fit {fit.device}, {by} too much"
    only = " with expandable segments only" if fit.fits and fit.allocator == "expandable" else ""
    needs = f": it takes {bytes_text(fit.total_bytes)} of {bytes_text(fit.memory_bytes)}"
    return [Text.assemble((plan.recipe, "bold"), " ", (said + only, "bold green" if fit.fits else "bold red"), needs)]


def _on_device(plan: Plan, fit: Fit) -> RenderableType:
    """The three numbers: what is live, what the allocator reserves for it, what the device gives up."""
    classic, expandable = (bytes_text(plan.reserved_bytes[name]) for name in ("classic", "expandable"))
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=12)
    table.add_column(justify="right", min_width=12)
    table.add_column()
    table.add_row("live", bytes_text(plan.live_bytes), "tensors and workspaces at the highest peak")
    table.add_row("reserved", classic, f"by torch's caching allocator, modelled; {expandable} with expandable segments")
    table.add_row("device", bytes_text(fit.total_bytes), f"with {bytes_text(fit.context_bytes)} of CUDA context")
    return Group(Text(f"\non {fit.device}", style="bold"), Padding(table, (0, 0, 0, 2)))


def _reserved(plan: Plan) -> list[RenderableType]:
    """What a GPU's allocator would make of it."""
    if not plan.reserved_bytes:
        return []
    if plan.fit is not None:
        return [_on_device(plan, plan.fit)]
    classic, expandable = (bytes_text(plan.reserved_bytes[name]) for name in ("classic", "expandable"))
    said = f"for these tensors a GPU would reserve {classic}, with expandable segments {expandable}"
    return [Text(f"\n{said} (modelled; without the GPU's own workspaces)")]


def _around(plan: Plan) -> dict[str, Peak]:
    """The peaks before and after the steps."""
    found = {"init": plan.init, "evaluate": plan.evaluate, "resume": plan.resume}
    return {name: usage.peak for name, usage in found.items() if usage.peak.peak_bytes}


def _usage_text(first: Usage, steady: Usage, *, around: dict[str, Peak] | None = None) -> RenderableType:
    return Group(
        Text(f"\nmemory  {bytes_text(steady.peak.peak_bytes)} at the peak of a steady step", style="bold"),
        Text(f"        {_moment(steady.peak)}"),
        Text(f"        first step: {bytes_text(first.peak.peak_bytes)}, {_moment(first.peak)}", style="dim"),
        _shares(steady.tally, "memory"),
        Text("\npeak by phase", style="bold"),
        _phase_peaks({**(around or {}), **steady.phase_peaks}),
        Text(f"\ncompute  {flops_text(steady.tally.total('flops'))} per step", style="bold"),
        _shares(steady.tally, "flops"),
        _modules(steady.tally),
    )


def _headline(name: str, usage: Usage) -> RenderableType:
    """The answer in one line: how much, what is largest of it, and what to do about that."""
    said = f"{bytes_text(usage.peak.peak_bytes)} at the peak"
    holding = largest(usage)
    if holding is not None:
        made = f" of {holding.operator}" if holding.operator else ""
        inside = f" in {holding.module or holding.phase}"
        said += f"; largest is {bytes_text(holding.size_bytes)}, {holding.tensor}{made}{inside} ({holding.account})"
        said += f": {advise(holding)}" if advise(holding) else ""
    return Text.assemble((name, "bold"), ": ", said)


def _moment(peak: Peak) -> str:
    inside = f" of {peak.module}" if peak.module else ""
    return f"in {peak.phase}{inside}" + (f", after {peak.operator}" if peak.operator else "")


def _shares(tally: Tally, name: str) -> RenderableType:
    """The accounts below a name, largest first, with their share."""
    total, unit = tally.total(name), {"memory": "bytes", "flops": "FLOP"}[name]
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=12)
    table.add_column(justify="right", min_width=12)
    table.add_column(justify="right")
    for part, amount in sorted(tally.under(name).items(), key=lambda item: -item[1]):
        table.add_row(part, amount_text(amount, unit), f"{amount / total:.1%}" if total else "")
    return Padding(table, (0, 0, 0, 2))


def _phase_peaks(peaks: dict[str, Peak]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=12)
    table.add_column(justify="right", min_width=12)
    table.add_column()
    for phase in sorted(peaks, key=lambda phase: (*PHASES, phase).index(phase)):
        table.add_row(phase, bytes_text(peaks[phase].peak_bytes), peaks[phase].operator)
    return Padding(table, (0, 0, 0, 2))


def _modules(tally: Tally) -> RenderableType:
    """The modules that take the most; siblings that take the same are one row."""
    memory, flops = _by_module(tally, "memory"), _by_module(tally, "flops")
    alike: dict[tuple[str, float, float], list[str]] = {}
    for name in sorted({*memory, *flops}, key=lambda name: (len(name), name)):
        parent = name.rpartition(".")[0] if "." in name else name
        alike.setdefault((parent, memory.get(name, 0), flops.get(name, 0)), []).append(name)
    rows = sorted(alike.items(), key=lambda row: (-len(row[1]) * row[0][1], -len(row[1]) * row[0][2]))
    table = table_of("module", "memory at peak", "FLOPs", "")
    for (_, each_memory, each_flops), names in rows[:MODULES_SHOWN]:
        shown = names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]}"
        times = "" if len(names) == 1 else f"each of {len(names)}"
        table.add_row(shown or "(outside modules)", bytes_text(each_memory), flops_text(each_flops), times)
    rest = [name for _, names in rows[MODULES_SHOWN:] for name in names]
    if rest:
        total = (sum(kind.get(name, 0) for name in rest) for kind in (memory, flops))
        table.add_row(f"{len(rest)} more", bytes_text(next(total)), flops_text(next(total)), "together")
    return Padding(table, (1, 0, 0, 0))


def _by_module(tally: Tally, name: str) -> dict[str, float]:
    amounts: dict[str, float] = {}
    for account in tally.accounts:
        first, *rest = account.name.split("/", 2)
        if first == name:
            module = _shown_module(rest[1]) if len(rest) > 1 else ""
            amounts[module] = amounts.get(module, 0) + account.amount
    return amounts


def _shown_module(name: str) -> str:
    """A module's name down to the first that is numbered, such as `model.layers.3`; else its first two parts."""
    parts = name.split(".")
    numbered = next((index for index, part in enumerate(parts) if part.isdigit()), 1)
    return ".".join(parts[: numbered + 1])


def _loss_line(run: Run) -> str:
    if run.first_loss is None or run.last_loss is None:
        return "no step was logged"
    held_out = "" if run.evaluation_loss is None else f", held-out {held_out_text(run, run.evaluation_loss)}"
    left_out = f"; {counted(run.updates_left_out, 'update')} left out" if run.updates_left_out else ""
    return f"loss {run.first_loss:.4f} -> {run.last_loss:.4f}{held_out}{left_out}"


def _spread(rows: list[LogRow], most: int) -> list[LogRow]:
    """At most `most` rows, evenly spread, the first and the last among them."""
    if len(rows) <= most:
        return rows
    return [rows[round(index * (len(rows) - 1) / (most - 1))] for index in range(most)]
