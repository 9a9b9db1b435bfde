"""The console that prints everything. Text from records stays text: no markup, no control characters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from surefoot.records.visible import visible


class PlainConsole(Console):
    """A rich console that prints `[red]` and `:smile:` as text, and control characters as `\\x1b`.

    The colours and cursor moves that rich itself makes are styles and control segments, and stay.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Also makes cells of tables visible, because rich measures them before it renders them."""
        return super().render_str(visible(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control or (shown := visible(text)) == text else Segment(shown, style)


def as_text(renderable: RenderableType, *, width: int = 100) -> str:
    """Renders plain text without colour, for files and tests."""
    console = PlainConsole(width=width, no_color=True, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"
