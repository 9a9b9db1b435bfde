"""The report as one self-contained HTML file. Needs plotly."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from surefoot.costs.layers import verdicts_of
from surefoot.costs.out_of_memory import cause_of
from surefoot.errors import MissingPackage, installing
from surefoot.plain_files import write_whole
from surefoot.records.codec import to_plain
from surefoot.records.finding import Finding
from surefoot.records.report import ModuleShare, Report, Sheet
from surefoot.reports import figures
from surefoot.reports.html import html_table, ledger_table, source_html
from surefoot.reports.layers import COLUMNS, layer_cells
from surefoot.reports.markup import Markup, joined, markup
from surefoot.reports.splits import splits_section
from surefoot.units import bytes_text, count_text, flops_text, seconds_text

MODULES = 15
"""How many modules the table shows; the tree next to it has all."""
LAYERS = 200
"""How many layers the table shows; the maps have all."""
_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; "
    "connect-src 'none'; form-action 'none'; base-uri 'none'; frame-src 'none'; object-src 'none'; worker-src 'none'"
)
"""What the page may do: run its own scripts, named by their hashes, and make no request.

A policy cannot forbid that a script or a link opens another page. But no other script runs, and there is no link.
"""
_NOTHING = Markup()
_VERDICTS = {True: "good", False: "bad", None: ""}


def write_page(report: Report, file: Path) -> None:
    """Writes the page completely or not at all."""
    write_whole(file, page(report), shared=True)


def page(report: Report) -> str:
    """The HTML of the page. It contains plotly.js, which draws the charts."""
    charts = _Charts()
    body = joined(_body(report, charts))
    scripts = [_plotly(), (files("surefoot.reports") / "page.js").read_text(encoding="utf-8")]
    data = markup('<script type="application/json" id="figures">{}</script>', _embedded(charts.figures))
    return document(_title(report), body, data=data, scripts=scripts)


def document(title: str, body: Markup, *, data: Markup = _NOTHING, scripts: Sequence[str] = ()) -> str:
    """A self-contained HTML file in the style of our pages, which may run these scripts and no others."""
    return markup(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="referrer" content="no-referrer">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<title>{title}</title><link rel="icon" href="data:,">'
        "<style>{style}</style></head><body><main>{body}</main>{data}{scripts}</body></html>\n",
        policy=_POLICY.format(scripts=" ".join(map(_hash, scripts)) or "'none'"),
        title=title,
        style=Markup((files("surefoot.reports") / "page.css").read_text(encoding="utf-8")),
        body=body,
        data=data,
        scripts=Markup("".join(f"<script>{script}</script>" for script in scripts)),
    )


def _hash(script: str) -> str:
    """The name of an inline script in a policy."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


class _Charts:
    """Figures by the id of the element that shows them."""

    def __init__(self) -> None:
        self.figures: dict[str, figures.Figure] = {}

    def place(self, figure: figures.Figure | None, title: str, *, note: str = "", tall: bool = False) -> Markup:
        if figure is None:
            return Markup()
        name = f"chart-{len(self.figures)}"
        self.figures[name] = figure
        place = '<div><h3>{}</h3>{}<div class="{}" id="{}"></div></div>'
        return markup(place, title, _note(note), "chart tall" if tall else "chart", name)


def _note(text: str) -> Markup:
    return markup('<p class="note">{}</p>', text) if text else Markup()


def _body(report: Report, charts: _Charts) -> Iterator[Markup]:
    yield markup('<header><div class="made">{} · {}</div>', report.made_by, _title(report))
    for sheet in report.sheets:
        yield markup('<h1 class="{}">{}</h1>', _VERDICTS[sheet.went_as_planned], sheet.headline)
        yield _first(sheet.first)
    yield _facts(report.sheets)
    yield Markup("</header>")
    curves = figures.curve_figures(report.sheets)
    if curves:
        places = (charts.place(figure, name.capitalize()) for name, figure in curves.items())
        yield markup("<h2>Curves</h2>{}", _pairs(places))
    for sheet in report.sheets:
        of = f": {sheet.name}" if len(report.sheets) > 1 else ""
        yield from _sheet(sheet, of, charts)


def _sheet(sheet: Sheet, of: str, charts: _Charts) -> Iterator[Markup]:
    yield from _section(f"Out of memory{of}", _out_of_memory(sheet))
    yield from _section(
        f"Memory over one step{of}",
        charts.place(figures.timeline_figure(sheet), f"{sheet.timeline_of.capitalize()}, by kind", tall=True),
    )
    yield from _section(f"Where it {'went' if sheet.timeline_of != 'planned' else 'goes'}{of}", _where(sheet, charts))
    yield from _section(f"Layers{of}", _layers(sheet, charts))
    yield from _section(f"Ledger{of}", ledger_table(sheet.ledger))
    yield from _section(
        f"Findings{of}", joined(_finding(each) for each in (sheet.findings.by_severity if sheet.findings else ()))
    )
    yield from _section(f"Tokens{of}", _tokens(sheet))
    yield from _section(f"Data{of}", splits_section(sheet.data))
    yield from _section(f"Cost{of}", _facts_of(sheet.cost))
    yield from _section(f"Events{of}", _events(sheet))
    yield from _section(f"Chosen and assumed{of}", joined(map(_note, sheet.notes)))
    yield from _section(f"Recipe and environment{of}", _recipe(sheet))


def _section(title: str, content: Markup) -> Iterator[Markup]:
    if content:
        yield markup("<h2>{}</h2>{}", title, content)


def _out_of_memory(sheet: Sheet) -> Markup:
    if sheet.out_of_memory is None:
        return Markup()
    cause = cause_of(sheet.out_of_memory)
    held = {account: bytes_text(size) for account, size in sheet.out_of_memory.by_account().items()}
    return joined([_note(cause.said), _facts_of(held), _note(cause.remedy)])


def _where(sheet: Sheet, charts: _Charts) -> Markup:
    if not sheet.modules:
        return Markup()
    ceiling = f"dashed: {sheet.ceiling.source}" if sheet.ceiling else ""
    trees = (
        charts.place(figures.memory_tree(sheet), "Memory at the peak, by module", tall=True),
        charts.place(figures.flops_tree(sheet), "FLOPs of a step, by module", tall=True),
        charts.place(figures.time_tree(sheet), "Time of a step, by module", tall=True),
        charts.place(figures.operator_figure(sheet), "Time of a step, by operator", tall=True),
        charts.place(figures.roofline_figure(sheet), "Roofline", note=ceiling, tall=True),
    )
    phases = [[name, seconds_text(amount)] for name, amount in sheet.phase_seconds.items()]
    timed = any(each.seconds for each in sheet.modules)
    rows = [_module_row(each, timed=timed) for each in sheet.modules[:MODULES]]
    more = len(sheet.modules) - len(rows)
    measured = ["time", "bytes moved", "limited by"] if timed else []
    table = html_table(["module", "memory at peak", "FLOPs", *measured], rows)
    left = _note(f"{more} more in the trees above" if more > 0 else "")
    return joined((_pairs(trees), table, left, html_table(["phase", "time"], phases)))


def _layers(sheet: Sheet, charts: _Charts) -> Markup:
    """Figures over the steps, then all layers in the last measured step."""
    if not sheet.layers:
        return Markup()
    last, verdicts = sheet.layers[-1], verdicts_of(sheet.layers)
    drawn = figures.layer_figures(sheet).items()
    places = (charts.place(figure, title.capitalize(), tall=True) for title, figure in drawn)
    rows = [layer_cells(name, each, verdicts.get(name, "")) for name, each in last.layers.items()]
    table = html_table(list(COLUMNS), rows[:LAYERS], numbers=range(2, 8))
    more = f"; {len(rows) - LAYERS} more layers are in layers.jsonl" if len(rows) > LAYERS else ""
    return joined((_pairs(places), table, _note(f"at step {last.step}{more}")))


def _module_row(share: ModuleShare, *, timed: bool) -> list[str]:
    measured = [seconds_text(share.seconds), bytes_text(share.moved_bytes), share.bound] if timed else []
    return [share.module, bytes_text(share.memory_bytes), flops_text(share.flops), *measured]


def _pairs(places: Iterable[Markup]) -> Markup:
    return markup('<div class="pair">{}</div>', joined(places))


def _title(report: Report) -> str:
    names = [f"{sheet.recipe} in {sheet.name}" if sheet.recipe else sheet.name for sheet in report.sheets]
    return ", ".join(names)


def _first(finding: Finding | None) -> Markup:
    if finding is None:
        nothing = "<b>Nothing to change first</b><p>No record shows anything that slows it down.</p>"
        return Markup(f'<div class="first none">{nothing}</div>')
    return markup(
        '<div class="first {severity}"><b>Change first: {remedy}</b><p>{seen}: {why}.</p>'
        '<p class="where">{check}, {where}</p></div>',
        **vars(finding),
    )


def _facts(sheets: Sequence[Sheet]) -> Markup:
    if len(sheets) == 1:
        return _facts_of(sheets[0].facts)
    names = list(dict.fromkeys(name for sheet in sheets for name in sheet.facts))
    rows = [[name, *(sheet.facts.get(name, "") for sheet in sheets)] for name in names]
    return html_table(["", *(sheet.name for sheet in sheets)], rows, numbers=())


def _facts_of(facts: dict[str, str]) -> Markup:
    cells = joined(markup("<div><span>{}</span><strong>{}</strong></div>", *each) for each in facts.items())
    return markup('<div class="facts">{}</div>', cells) if cells else Markup()


def _finding(finding: Finding) -> Markup:
    return markup(
        '<div class="first {severity}"><b>{check}</b>{source}<p>{seen}</p><p>{why}</p><p>Remedy: {remedy}</p>'
        '<p class="where">{where}</p></div>',
        source=source_html(finding),
        **vars(finding),
    )


def _tokens(sheet: Sheet) -> Markup:
    if sheet.tokens is None:
        return Markup()
    rows = [
        [each.source, *map(count_text, (each.held, each.valid, each.repeated, each.masked, each.cropped, each.left))]
        for each in sheet.tokens.sources
    ]
    told = f"{count_text(sheet.tokens.trained)} trained tokens, {count_text(sheet.tokens.padding)} of padding"
    columns = ["source", "held", "valid", "repeated", "masked", "cropped", "left"]
    return joined((html_table(columns, rows), _note(told)))


def _events(sheet: Sheet) -> Markup:
    rows = [[each.at, str(each.step), each.kind, each.text] for each in sheet.events[-100:]]
    return html_table(["at", "after step", "kind", "text"], rows, numbers=(1,)) if rows else Markup()


def _recipe(sheet: Sheet) -> Markup:
    tables = [
        markup("<div><h3>{}</h3>{}</div>", title, html_table(["", ""], [[name, str(values[name])] for name in values]))
        for title, values in (("Knobs", sheet.knobs), ("Settings", sheet.settings), ("Environment", sheet.environment))
        if values
    ]
    file = "<details><summary>the recipe's file</summary><pre>{}</pre></details>"
    source = markup(file, sheet.source) if sheet.source else Markup()
    return joined((_pairs(tables) if tables else "", source))


def _embedded(figures_by_id: dict[str, figures.Figure]) -> Markup:
    """JSON that is safe inside a script element."""
    return Markup(json.dumps(to_plain(figures_by_id), separators=(",", ":")).replace("<", "\\u003c"))


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingPackage(f"--html needs plotly: {installing('report', 'plotly')}") from error
    script: str = get_plotlyjs()
    return script
