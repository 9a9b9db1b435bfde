"""Records as HTML tables, for pages and notebooks. Needs no chart library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from surefoot.records.finding import Finding, Findings, Mark
from surefoot.records.ledger import Entry, Ledger
from surefoot.records.looked import Looked, form_text
from surefoot.records.plan import Plan
from surefoot.records.profile import Profile
from surefoot.records.run import Run
from surefoot.records.shown import Shown
from surefoot.records.watched import Watched
from surefoot.reports.layers import layer_figures
from surefoot.reports.markup import Markup, joined, markup
from surefoot.units import amount_text, between, bytes_text, count_text, counted, flops_text, seconds_text


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
    table = html_table([watched.script, ", ".join(watched.models)], rows)
    return joined([table, *map(finding_html, watched.findings.by_severity)])


def findings_html(findings: Findings) -> str:
    """The findings of a check, errors first."""
    said = f"{counted(len(findings.findings), 'finding')} by {counted(len(findings.checks), 'check')}"
    return joined([*map(finding_html, findings.by_severity), markup("<p>{}: {}.</p>", findings.recipe, said)])


def finding_html(finding: Finding) -> Markup:
    """A finding with the lines at fault, and the line after the edit where that is certain."""
    head = markup("<p><b>{}: {}</b><br>{}<br>{}</p>", finding.severity, finding.check, finding.seen, finding.why)
    return joined([head, source_html(finding), markup("<p>Remedy: {}</p>", finding.remedy)])


def source_html(finding: Finding) -> Markup:
    """The lines at fault with their numbers, the part at fault marked; then the change."""
    lines = [_marked(each) for each in finding.marks]
    if finding.edit is not None:
        said = (("-", finding.edit.before), ("+", finding.edit.after))
        lines += [markup("{} {} {}", finding.edit.line, sign, line) for sign, line in said if line]
    return markup("<pre>{}</pre>", joined(markup("{}\n", each) for each in lines)) if lines else Markup()


def _marked(mark: Mark) -> Markup:
    before, part, after = mark.code[: mark.first], mark.code[mark.first : mark.last], mark.code[mark.last :]
    return markup("{} | {}<mark>{}</mark>{}  {}", mark.line, before, part, after, mark.label)


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
    return f"{'+' if entry.difference > 0 else '-'}{amount_text(abs(entry.difference), entry.unit)}{_share(entry)}"


def _share(entry: Entry) -> str:
    """The difference as a share of the prediction; empty if it is too small to mean something."""
    if not entry.predicted or entry.difference is None or entry.is_small:
        return ""
    share = entry.difference / entry.predicted
    return f" ({share:+.2%})" if abs(share) < 10 else f" (x {share + 1:,.0f})"


def _ledger_row(entry: Entry) -> Markup:
    left, right = (
        "-" if amount is None else amount_text(amount, entry.unit) for amount in (entry.predicted, entry.measured)
    )
    kind = {True: "same", False: "off", None: "dim"}[entry.agrees]
    why = "; ".join(part for part in (entry.attribution, entry.cause) if part)
    numbers = '<td class="number">{}</td><td class="number">{}</td><td class="number {}">{}</td>'
    row = f"<tr><td>{{}}</td>{numbers}<td>{{}}</td></tr>"
    return markup(row, entry.account, left, right, kind, difference_text(entry), why)


TABLES: Mapping[type[Shown], Callable[[Any], str]] = {
    Findings: findings_html,
    Ledger: ledger_table,
    Looked: looked_table,
    Plan: plan_table,
    Profile: profile_table,
    Run: run_table,
    Watched: watched_table,
}
"""The function that makes the HTML of each kind of record."""


def html_of(record: Shown) -> str:
    """Returns the HTML that a notebook shows for a record."""
    return TABLES[type(record)](record)
