"""A sweep as one HTML page to look at and to send. It needs no chart library and runs no script."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from surefoot.plain_files import write_whole
from surefoot.records.sweep import Sweep
from surefoot.reports.html import html_table
from surefoot.reports.markup import Markup, joined, markup
from surefoot.reports.page import document
from surefoot.reports.sweep import cells, columns, headline, notes


def write_sweep_page(sweep: Sweep, file: Path) -> None:
    """Writes the page completely or not at all."""
    write_whole(file, document(f"surefoot sweep: {sweep.target}", joined(_body(sweep))), shared=True)


def _body(sweep: Sweep) -> Iterator[Markup]:
    made = f"surefoot {version('surefoot')} sweep · {sweep.target} {' '.join(sweep.words)} · seed {sweep.seed}"
    yield markup('<header><div class="made">{}</div>', made)
    yield markup('<h1 class="{}">{}</h1></header>', "good" if sweep.winner else "bad", headline(sweep) + ".")
    names = columns(sweep)
    rows = [cells(sweep, each) for each in sweep.ranked()]
    yield markup("<h2>Trials</h2>{}", html_table(names, rows, numbers=range(1, len(names) - 1)))
    yield joined(markup('<p class="note">{}</p>', each) for each in notes(sweep))
