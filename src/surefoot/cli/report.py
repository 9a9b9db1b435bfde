"""The command `surefoot report`: show or compare finished runs as text, an HTML page or pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surefoot.cli.shared import JsonOption, agreeing
from surefoot.records.codec import to_json
from surefoot.reports.console import PlainConsole

if TYPE_CHECKING:
    from surefoot.records.run import Run


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="run directories of train, profile --run or watch --run")
    ],
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="write one self-contained page; needs no network")
    ] = None,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="DIR", help="write every figure as a picture; needs Chromium")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Shows whether runs went as planned, what to change first, and every figure behind it.

    It compares several runs on one page.

    Example: `surefoot report runs/first runs/second --html report.html`
    """
    from surefoot.reports.figures import titled_figures
    from surefoot.reports.gather import report_of
    from surefoot.reports.report import report_text

    with agreeing(*runs):
        record = report_of(*runs, read=_read)
        read = [_read(run) for run in runs if (run / "run.json").exists()]
        if html is not None:
            from surefoot.reports.page import write_page

            write_page(record, html)
        if png is not None:
            from surefoot.reports.pictures import write_pictures

            write_pictures(record, png)
        if json:
            ledgers = [each.token_ledger.totals(each.parameters) if each.token_ledger else None for each in read]
            logs = [each.rows() for each in read]
            figures = titled_figures(record)
            print(to_json({"report": record, "figures": figures, "runs": read, "tokens": ledgers, "logs": logs}))
            return
        PlainConsole().print(report_text(record, read))
        for written in filter(None, (html, png)):
            PlainConsole().print(f"wrote {written}", style="dim", highlight=False)


def _read(folder: Path) -> Run:
    """The run in a directory. If its process was killed, it is called stopped."""
    from surefoot.checkpoint.lock import has_ended
    from surefoot.records.run import read_run

    return read_run(folder).as_logged(ended=has_ended(folder))
