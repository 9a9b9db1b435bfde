"""The report as one HTML file that needs nothing else. Needs `pip install 'surefoot[report]'`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from surefoot.errors import MissingPackage
from surefoot.records.codec import to_plain
from surefoot.records.files import write_whole
from surefoot.records.finding import Finding
from surefoot.records.html import html_table, ledger_table
from surefoot.records.report import Report, Sheet
from surefoot.records.units import bytes_text, count_text, flops_text, seconds_text
from surefoot.reports import figures

MODULES = 15
"""How many modules the table names; the tree beside it has all."""
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""What the page may do: run what stands in it, and ask nobody for anything."""
_VERDICTS = {True: "good", False: "bad", None: ""}


def write_page(report: Report, file: Path) -> None:
    """Writes the page whole or not at all."""
    write_whole(file, page(report))


def page(report: Report) -> str:
    """Charts are drawn by plotly.js, which stands in the page itself."""
    charts = _Charts()
    body = "".join(_body(report, charts))
    own = files("surefoot.reports")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(_title(report))}</title><link rel="icon" href="data:,">'
        f"<style>{(own / 'page.css').read_text()}</style></head>"
        f"<body><main>{body}</main>"
        f'<script type="application/json" id="figures">{_embedded(charts.figures)}</script>'
        f"<script>{_plotly()}</script><script>{(own / 'page.js').read_text()}</script></body></html>\n"
    )


class _Charts:
    """Figures by the id of the place where they are drawn."""

    def __init__(self) -> None:
        self.figures: dict[str, figures.Figure] = {}

    def place(self, figure: figures.Figure | None, title: str, *, note: str = "", tall: bool = False) -> str:
        if figure is None:
            return ""
        name = f"chart-{len(self.figures)}"
        self.figures[name] = figure
        told = f'<p class="note">{escape(note)}</p>' if note else ""
        return (
            f'<div><h3>{escape(title)}</h3>{told}<div class="chart{" tall" if tall else ""}" id="{name}"></div></div>'
        )


def _body(report: Report, charts: _Charts) -> Iterator[str]:
    yield f'<header><div class="made">{escape(report.made_by)} · {escape(_title(report))}</div>'
    for sheet in report.sheets:
        yield f'<h1 class="{_VERDICTS[sheet.went_as_planned]}">{escape(sheet.headline)}</h1>'
        yield _first(sheet.first)
    yield _facts(report.sheets)
    yield "</header>"
    curves = figures.curve_figures(report.sheets)
    if curves:
        yield "<h2>Course</h2>" + _pairs(charts.place(figure, name.capitalize()) for name, figure in curves.items())
    for sheet in report.sheets:
        of = f": {sheet.name}" if len(report.sheets) > 1 else ""
        yield from _sheet(sheet, of, charts)


def _sheet(sheet: Sheet, of: str, charts: _Charts) -> Iterator[str]:
    yield from _section(
        f"Memory over one step{of}",
        charts.place(figures.timeline_figure(sheet), f"{sheet.timeline_of.capitalize()}, by account", tall=True),
    )
    yield from _section(f"Where it went{of}", _where(sheet, charts))
    yield from _section(f"Ledger{of}", ledger_table(sheet.ledger))
    yield from _section(
        f"Findings{of}", "".join(_finding(each) for each in (sheet.findings.findings if sheet.findings else ()))
    )
    yield from _section(f"Tokens{of}", _tokens(sheet))
    yield from _section(f"Cost{of}", _facts_of(sheet.cost))
    yield from _section(f"Events{of}", _events(sheet))
    yield from _section(f"Recipe and environment{of}", _recipe(sheet))


def _section(title: str, content: str) -> Iterator[str]:
    if content:
        yield f"<h2>{escape(title)}</h2>{content}"


def _where(sheet: Sheet, charts: _Charts) -> str:
    if not sheet.modules:
        return ""
    ceiling = f"dashed: {sheet.ceiling.source}" if sheet.ceiling else ""
    trees = (
        charts.place(figures.memory_tree(sheet), "Memory at the peak, by module", tall=True),
        charts.place(figures.time_tree(sheet), "Time of a step, by module", tall=True),
        charts.place(figures.operator_figure(sheet), "Time of a step, by operator", tall=True),
        charts.place(figures.roofline_figure(sheet), "Roofline", note=ceiling, tall=True),
    )
    phases = [[name, seconds_text(amount)] for name, amount in sheet.phase_seconds.items()]
    rows = [
        [
            each.module,
            seconds_text(each.seconds),
            bytes_text(each.memory_bytes),
            flops_text(each.flops),
            bytes_text(each.moved_bytes),
            each.bound,
        ]
        for each in sheet.modules[:MODULES]
    ]
    more = len(sheet.modules) - len(rows)
    table = html_table(["module", "time", "memory at peak", "FLOPs", "bytes moved", "held up by"], rows)
    left = f'<p class="note">{more} more in the trees above</p>' if more > 0 else ""
    return _pairs(trees) + table + left + html_table(["phase", "time"], phases)


def _pairs(places: Any) -> str:
    return f'<div class="pair">{"".join(places)}</div>'


def _title(report: Report) -> str:
    return ", ".join(sheet.name for sheet in report.sheets)


def _first(finding: Finding | None) -> str:
    if finding is None:
        nothing = "<b>Nothing to change first</b><p>No record shows anything that slows it down.</p>"
        return f'<div class="first none">{nothing}</div>'
    return (
        f'<div class="first {finding.severity}"><b>Change first: {escape(finding.remedy)}</b>'
        f"<p>{escape(finding.seen)}: {escape(finding.why)}.</p>"
        f'<p class="where">{escape(finding.check)}, {escape(finding.where)}</p></div>'
    )


def _facts(sheets: Sequence[Sheet]) -> str:
    if len(sheets) == 1:
        return _facts_of(sheets[0].facts)
    names = list(dict.fromkeys(name for sheet in sheets for name in sheet.facts))
    rows = [[name, *(sheet.facts.get(name, "") for sheet in sheets)] for name in names]
    return html_table(["", *(sheet.name for sheet in sheets)], rows, numbers=())


def _facts_of(facts: dict[str, str]) -> str:
    cells = "".join(
        f"<div><span>{escape(name)}</span><strong>{escape(told)}</strong></div>" for name, told in facts.items()
    )
    return f'<div class="facts">{cells}</div>' if cells else ""


def _finding(finding: Finding) -> str:
    return (
        f'<div class="first {finding.severity}"><b>{escape(finding.check)}</b><p>{escape(finding.seen)}</p>'
        f"<p>{escape(finding.why)}</p><p>Remedy: {escape(finding.remedy)}</p>"
        f'<p class="where">{escape(finding.where)}</p></div>'
    )


def _tokens(sheet: Sheet) -> str:
    if sheet.tokens is None:
        return ""
    rows = [
        [each.source, *map(count_text, (each.held, each.valid, each.repeated, each.masked, each.cropped, each.left))]
        for each in sheet.tokens.sources
    ]
    told = f"{count_text(sheet.tokens.trained)} trained tokens, {count_text(sheet.tokens.padding)} of padding"
    columns = ["source", "held", "valid", "repeated", "masked", "cropped", "left"]
    return html_table(columns, rows) + f'<p class="note">{told}</p>'


def _events(sheet: Sheet) -> str:
    rows = [[each.at, str(each.step), each.kind, each.text] for each in sheet.events[-100:]]
    return html_table(["at", "after step", "kind", "text"], rows, numbers=(1,)) if rows else ""


def _recipe(sheet: Sheet) -> str:
    tables = [
        f"<div><h3>{title}</h3>{html_table(['', ''], [[name, str(value)] for name, value in values.items()])}</div>"
        for title, values in (("Knobs", sheet.knobs), ("Settings", sheet.settings), ("Environment", sheet.environment))
        if values
    ]
    source = (
        f"<details><summary>the recipe's file</summary><pre>{escape(sheet.source)}</pre></details>"
        if sheet.source
        else ""
    )
    return (_pairs(tables) if tables else "") + source


def _embedded(figures_by_id: dict[str, figures.Figure]) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(to_plain(figures_by_id), separators=(",", ":")).replace("<", "\\u003c")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingPackage("a page needs plotly: pip install 'surefoot[report]'") from error
    script: str = get_plotlyjs()
    return script
