"""The figures of a report as PNG files, for a README. Needs plotly, kaleido, and Chromium or Chrome."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surefoot.errors import MissingPackage, installing
from surefoot.records.report import Report
from surefoot.reports.figures import Figure, as_text, titled_figures

WIDTH, HEIGHT, SCALE = 900, 450, 2
_LEGEND = {"orientation": "h", "y": -0.2}


def write_pictures(report: Report, folder: Path) -> list[Path]:
    """One file for each figure, named after it; all in one browser."""
    drawn = {_file_name(title): _titled(title, figure) for title, figure in titled_figures(report).items()}
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / name for name in drawn]
    _draw(list(drawn.values()), written)
    return written


def _file_name(title: str) -> str:
    return title.replace(" ", "-").replace("/", "-") + ".png"


def _titled(title: str, figure: Figure) -> Figure:
    layout = {**figure["layout"], "title": {"text": as_text(title)}, "template": "plotly_white"}
    return {**figure, "layout": {**layout, "legend": {**_LEGEND, **layout.get("legend", {})}, "margin": {"t": 70}}}


def _draw(drawn: list[Any], files: list[Path]) -> None:
    try:
        import plotly.io
        from choreographer.errors import BrowserFailedError, ChromeNotFoundError
    except ImportError as error:
        raise MissingPackage(f"--png needs plotly and kaleido: {installing('report', 'plotly', 'kaleido')}") from error
    try:
        plotly.io.write_images(fig=drawn, file=files, width=WIDTH, height=HEIGHT, scale=SCALE)
    except ChromeNotFoundError as error:
        said = "--png needs Chromium or Chrome, and found neither: apt-get install chromium"
        raise MissingPackage(f"{said}, or run plotly_get_chrome") from error
    except BrowserFailedError as error:
        raise MissingPackage("--png needs a browser, and the one that is installed does not start here") from error
