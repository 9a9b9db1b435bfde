"""Records as HTML tables, for pages and notebooks. Needs no chart library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from surefoot.records.layers import layer_figures
from surefoot.records.looked import form_text
from surefoot.records.markup import Markup, joined, markup
from surefoot.records.units import amount_text, between, bytes_text, count_text, flops_text, seconds_text

if TYPE_CHECKING:
    from surefoot.records.ledger import Entry, Ledger
    from surefoot.records.looked import Looked
    from surefoot.records.plan import Plan
    from surefoot.records.profile import Profile
    from surefoot.records.run import Run
    from surefoot.records.watched import Watched


def html_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] | None = None
) -> Markup:
    """A table. `numbers` lists the columns of numbers; the default is all but the first."""
    right = range(1, len(columns)) if numbers is None else numbers
    sides = [Markup('class="number"' if index in right else "") for index in range(len(columns))]
    head = joined(markup("<th {}>{}</th>", side, name) for side, name in zip(sides, columns, strict=True))
    cells = (joined(markup("<td {}>{}</td>", *each) for each in zip(sides, row, strict=True)) for row in rows)
    return _table(head, joined(markup("<tr>{}</tr>", row) for row in cells))


def _table(head: Markup, body: Markup) -> Markup:
    page = '<div class="wide"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    return markup(page, head, body)


def ledger_table(ledger: Ledger) -> Markup:
    """Account, predicted, measured, difference, and the source of a difference."""
    if not ledger.entries:
        return Markup()
    if all(entry.predicted is None for entry in ledger.entries):
        measured = [[entry.account, amount_text(entry.measured or 0, entry.unit)] for entry in ledger.entries]
        return html_table(["account", "measured"], measured)
    sides = '<th>account</th><th class="number">predicted</th><th class="number">measured</th>'
    head = Markup(f'{sides}<th class="number">difference</th><th>where from</th>')
    return _table(head, joined(_ledger_row(entry) for entry in ledger.entries))


def plan_table(plan: Plan) -> str:
    """A plan in a few lines."""
    memory = sorted(plan.steady.tally.under("memory").items(), key=lambda item: -item[1])
    rows = [
        ["parameters", count_text(plan.parameters)],
        ["memory at the peak", bytes_text(plan.steady.peak.peak_bytes)],
        *([f"of it {name}", bytes_text(amount)] for name, amount in memory),
        ["FLOPs per step", flops_text(plan.steady.tally.total("flops"))],
        [f"{plan.unit}s per step", count_text(plan.tokens_per_step)],
    ]
    if plan.time is not None:
        known = plan.time.interval
        ends = "" if known is None else f" (80%: {between(known.low_seconds, known.high_seconds, seconds_text)})"
        rows.append(["step", f"{seconds_text(plan.time.seconds)}{ends}"])
    return html_table([plan.recipe, "planned"], rows)


def profile_table(profile: Profile) -> str:
    """A profile in a few lines."""
    rows = [
        ["step", seconds_text(profile.mean_step_seconds)],
        *([f"of it {name}", seconds_text(amount)] for name, amount in profile.clock.under("seconds").items()),
        ["waiting for data", f"{profile.waiting:.1%}"],
        ["memory at the peak", bytes_text(profile.steady.peak.peak_bytes)],
        ["FLOPs per step", flops_text(profile.steady.tally.total("flops"))],
        ["MFU", "none" if profile.mfu is None else f"{profile.mfu:.1%}"],
    ]
    return html_table([profile.recipe, f"measured on {profile.device}"], rows)


def watched_table(watched: Watched) -> str:
    """A watched script in a few lines."""
    rows = [["steps", count_text(watched.steps)], ["parameters", count_text(watched.parameters)]]
    if watched.steady is not None:
        rows.append(["memory at the peak", bytes_text(watched.steady.peak.peak_bytes)])
        rows.append(["FLOPs per step", flops_text(watched.steady.tally.total("flops"))])
    if watched.step_seconds:
        rows.append(["step", seconds_text(sum(watched.step_seconds) / len(watched.step_seconds))])
    rows += [[f"{each.severity}: {each.check}", f"{each.seen}; {each.remedy}"] for each in watched.findings.findings]
    return html_table([watched.script, ", ".join(watched.models)], rows)


def looked_table(looked: Looked) -> str:
    """Every module of a step: its output, parameters, activations and gradient."""
    rows = [
        [
            each.name or "(model)",
            each.kind,
            ", ".join(form_text(form) for form in each.outputs),
            f"{each.parameters:,}" if each.parameters else "",
            *layer_figures(each.layer),
        ]
        for each in looked.modules
    ]
    head = ["module", "kind", "output", "parameters", "gradient", "update/weight", "mean", "deviation", "zeros"]
    return html_table([*head, "saturated"], rows, numbers=range(3, 10))


def run_table(run: Run) -> str:
    """A run in a few lines."""
    losses = "-" if run.first_loss is None or run.last_loss is None else f"{run.first_loss:.4f} → {run.last_loss:.4f}"
    rows = [
        ["status", run.status],
        ["steps", count_text(run.steps)],
        ["loss", losses],
        [f"{run.unit}s", count_text(run.tokens)],
        ["seconds", seconds_text(run.seconds)],
        ["kept in", run.path],
    ]
    return html_table([run.recipe, ""], rows)


def difference_text(entry: Entry) -> str:
    """The difference in its unit and as a share, or why there is none."""
    if entry.difference is None:
        return "not predicted" if entry.predicted is None else "not measured"
    if entry.difference == 0:
        return "0"
    share = f" ({entry.difference / entry.predicted:+.2%})" if entry.predicted else ""
    return f"{'+' if entry.difference > 0 else '-'}{amount_text(abs(entry.difference), entry.unit)}{share}"


def _ledger_row(entry: Entry) -> Markup:
    left, right = (
        "-" if amount is None else amount_text(amount, entry.unit) for amount in (entry.predicted, entry.measured)
    )
    kind = {True: "same", False: "off", None: "dim"}[entry.agrees]
    why = "; ".join(part for part in (entry.attribution, entry.cause) if part)
    numbers = '<td class="number">{}</td><td class="number">{}</td><td class="number {}">{}</td>'
    row = f"<tr><td>{{}}</td>{numbers}<td>{{}}</td></tr>"
    return markup(row, entry.account, left, right, kind, difference_text(entry), why)
