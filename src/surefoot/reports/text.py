"""Records as text for a terminal."""

from collections.abc import Sequence
from statistics import median

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from surefoot.costs.advice import advise, largest
from surefoot.costs.conventions import CONVENTIONS
from surefoot.costs.diagnosis import Signs, diagnose
from surefoot.costs.shares import bound, module_shares, operator_seconds, seen_ceilings
from surefoot.records.audit import Audit
from surefoot.records.comparison import Comparison
from surefoot.records.export import Export, Weights
from surefoot.records.finding import Finding, Findings
from surefoot.records.html import difference_text
from surefoot.records.ledger import Entry, Ledger
from surefoot.records.log import LogRow
from surefoot.records.plan import Fit, Plan
from surefoot.records.profile import Profile
from surefoot.records.report import Report
from surefoot.records.run import Run
from surefoot.records.tally import Tally
from surefoot.records.units import amount_text, bytes_text, count_text, counted, flops_text, seconds_text
from surefoot.records.usage import Peak, Usage
from surefoot.records.watched import Watched
from surefoot.reports.data import token_ledger_text
from surefoot.reports.gather import signs_of, signs_of_watched
from surefoot.reports.live import held_out_text
from surefoot.reports.parts import table_of, title
from surefoot.reports.plan_time import step_time_text

PHASES = ("init", "resume", "load", "forward", "loss", "backward", "update", "evaluate")
MODULES_SHOWN = 8
_COLOUR = {"error": "red", "warning": "yellow", "info": "cyan"}


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


def profile_text(profile: Profile, ledger: Ledger) -> RenderableType:
    """Where the time went, predicted beside measured, and what to change first."""
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
        *_changes(signs_of(profile)),
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
    """Waiting for data, and asking the device."""
    syncs = {name: amount for name, amount in profile.counted.under("syncs").items() if amount}
    asked = ", ".join(f"{amount:.0f} in {phase}" for phase, amount in syncs.items()) or "none"
    waited = seconds_text(profile.waiting * profile.mean_step_seconds)
    lines = [f"waiting for data {waited} ({profile.waiting:.1%}); host asks the device for a value: {asked}"]
    if profile.recompilations:
        lines.append(f"{counted(profile.recompilations, 'graph')} compiled again after the first step")
    return [Text(line) for line in lines]


def _spent(profile: Profile) -> list[RenderableType]:
    """Time by phase, module and operator; modules with what holds them up."""
    if not profile.traced.accounts:
        return []
    total, shares = profile.traced.total("time"), module_shares(profile)
    roof = seen_ceilings(shares)
    phases = Text(
        "  ".join(f"{name} {amount / total:.0%}" for name, amount in _by_amount(profile.traced.under("time")))
    )
    modules = table_of("module", "time", "", "FLOP/byte", "held up by")
    for each in shares[:MODULES_SHOWN]:
        intensity = f"{each.flops / each.moved_bytes:.1f}" if each.moved_bytes else "-"
        modules.add_row(
            each.module, seconds_text(each.seconds), f"{each.seconds / total:.1%}", intensity, bound(each, roof)
        )
    operators = table_of("operator", "time", "")
    for name, amount in list(operator_seconds(profile).items())[:MODULES_SHOWN]:
        operators.add_row(name, seconds_text(amount), f"{amount / total:.1%}")
    note = f"shares by torch.profiler, under which a step took {profile.traced_over_timed:.2f} times as long"
    return [phases, Text(), modules, Text(), operators, Text(note, style="dim")]


def _by_amount(amounts: dict[str, int | float]) -> list[tuple[str, int | float]]:
    return sorted(amounts.items(), key=lambda item: -item[1])


def _changes(signs: Signs) -> list[RenderableType]:
    """What the records show, the first to change first."""
    return [Text(), *(_finding_text(finding) for finding in diagnose(signs))]


def comparison_text(found: Comparison) -> RenderableType:
    """How much faster or slower, and how sure."""
    sides = table_of("", "median step", "rounds")
    for name, seconds in ((found.before, found.before_seconds), (found.after, found.after_seconds)):
        sides.add_row(name, seconds_text(median(seconds)), str(len(seconds)))
    interval = f"{found.confidence:.0%} sure of {found.low:.3f} to {found.high:.3f}"
    if not found.differs:
        said = f"no difference can be told: {found.ratio:.3f} times the seconds, {interval}"
    else:
        word = "faster" if found.ratio < 1 else "slower"
        said = f"{abs(1 - found.ratio):.1%} {word}: {found.ratio:.3f} times the seconds, {interval}"
    return Group(sides, Text(said, style="bold"))


def ledger_text(ledger: Ledger) -> RenderableType:
    """Account, predicted, measured, difference; below it, where differences come from."""
    table = table_of("account", "predicted", "measured", "difference")
    for entry in ledger.entries:
        table.add_row(entry.account, *_sides(entry), _difference_text(entry))
    told = [(entry.account, "; ".join(filter(None, (entry.attribution, entry.cause)))) for entry in ledger.entries]
    return Group(table, *(Text(f"{account}: {why}", style="yellow") for account, why in told if why))


def report_text(report: Report, runs: Sequence[Run]) -> RenderableType:
    """The answer, then each run, its ledger and what was found."""
    parts: list[RenderableType] = []
    for sheet in report.sheets:
        change = "nothing to change first" if sheet.first is None else f"change first: {sheet.first.remedy}"
        parts.append(Text(f"{sheet.headline} {change.capitalize()}.", style="bold"))
        parts += [run_text(run) for run in runs if run.path == sheet.path]
        parts += [Text(), ledger_text(sheet.ledger)] if sheet.ledger.entries else []
        found = sheet.findings.findings if sheet.findings else ()
        parts += [Text(), *(_finding_text(finding) for finding in found)] if found else []
    return Group(*parts)


def findings_text(findings: Findings) -> RenderableType:
    """Every finding with its remedy; one line if there is none."""
    looked = [name for name in findings.checks if name not in findings.allowed]
    allowed = f" Allowed: {', '.join(findings.allowed)}." if findings.allowed else ""
    if not findings.findings:
        return Text(f"{findings.recipe}: nothing found by {counted(len(looked), 'check')}.{allowed}", style="green")
    found = counted(len(findings.findings), "finding")
    count = f"{findings.recipe}: {found} by {counted(len(looked), 'check')}.{allowed}"
    return Group(*(_finding_text(finding) for finding in findings.findings), Text(count))


def run_text(run: Run) -> RenderableType:
    """What a run has done, and its loss from first to last."""
    table = table_of("step", "loss", "held-out", "grad norm", "lr", "tokens/s", "data")
    for row in _spread(run.rows(), 12):
        table.add_row(
            str(row.step),
            f"{row.loss:.4f}",
            "-" if row.evaluation_loss is None else held_out_text(run, row.evaluation_loss),
            f"{row.grad_norm:.3f}",
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
    return Group(files, Text(f"{weights.tensors} tensors, {size}, of step {weights.step} of {weights.run}"))


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
    return Group(*parts, *_changes(signs_of_watched(watched)), findings_text(watched.findings))


def _pace(watched: Watched) -> list[RenderableType]:
    """How long the steps took that were not booked, by phase."""
    if not watched.step_seconds:
        return []
    seconds = sum(watched.step_seconds) / len(watched.step_seconds)
    shares = "  ".join(f"{name} {amount / seconds:.0%}" for name, amount in _by_amount(watched.clock.under("seconds")))
    return [Text(f"\nstep {seconds_text(seconds)}  {shares}")]


def as_text(renderable: RenderableType, *, width: int = 100) -> str:
    """Plain text without colour, for files and tests."""
    console = Console(width=width, no_color=True, force_terminal=False, legacy_windows=False)
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
    for phase in sorted(peaks, key=PHASES.index):
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


def _sides(entry: Entry) -> tuple[str, str]:
    sides = (entry.predicted, entry.measured)
    left, right = ("-" if amount is None else amount_text(amount, entry.unit) for amount in sides)
    return left, right


def _difference_text(entry: Entry) -> Text:
    style = {True: "green" if entry.difference == 0 else "", False: "red", None: "dim"}[entry.agrees]
    return Text(difference_text(entry), style=style)


def _finding_text(finding: Finding) -> RenderableType:
    head = Text.assemble((finding.severity, f"bold {_COLOUR[finding.severity]}"), " ", (finding.check, "bold"))
    body = Table.grid(padding=(0, 2))
    body.add_column(style="dim")
    body.add_column()
    for label in ("seen", "where", "why", "remedy"):
        body.add_row(label, getattr(finding, label))
    return Group(head, Padding(body, (0, 0, 1, 2)))


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
