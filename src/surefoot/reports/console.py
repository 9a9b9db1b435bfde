"""The console that prints everything. Text from records stays text: no markup, no control characters."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from surefoot.reports.visible import visible

UNWRAPPED = 10_000
"""Columns of an output that has no width."""


class PlainConsole(Console):
    """A rich console that prints `[red]` and `:smile:` as text, and control characters as `\\x1b`.

    The colours and cursor moves that rich itself makes are styles and control segments, and stay. A file or a pipe has
    no width, so its lines do not wrap, unless COLUMNS states one.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)
        if not (self.is_terminal or self.is_jupyter or "width" in options or "COLUMNS" in os.environ):
            self.width = UNWRAPPED

    def render_str(self, text: str, **options: Any) -> Text:
        """Also makes cells of tables visible, because rich measures them before it renders them."""
        return super().render_str(visible(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control or (shown := visible(text)) == text else Segment(shown, style)


def print_text(text: str, *, end: str = "\n") -> None:
    """Prints a model's text as it is, and on a terminal with control characters as `\\x1b`.

    Each character is judged alone, so a sequence that comes in pieces, token by token, does not act either.
    """
    print(visible(text) if sys.stdout.isatty() else text, end=end, flush=True)


def as_text(renderable: RenderableType, *, width: int = 100) -> str:
    """Renders plain text without colour, for files and tests."""
    console = PlainConsole(width=width, no_color=True, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"
