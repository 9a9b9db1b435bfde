"""What several texts have in common: the line that names a recipe, and plain tables."""

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text


def title(name: str, knobs: dict[str, str | int | float | bool | None], about: str = "") -> RenderableType:
    """A recipe's name, what it learns, and its knobs."""
    lines = Table.grid(padding=(0, 2))
    settings = Text(" ".join(f"{knob}={value}" for knob, value in knobs.items()), style="dim")
    lines.add_row(Text(name, style="bold"), Text(about) if about else settings)
    if about and knobs:
        lines.add_row("", settings)
    return lines


def table_of(*columns: str) -> Table:
    """A table without lines: the first column to the left, the others to the right."""
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 else "right")
    return made
