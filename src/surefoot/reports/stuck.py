"""Where processes stand, as text: the cause first, then a line for each process."""

import os

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.stuck import Standing, Stuck
from surefoot.reports.parts import table_of


def stuck_text(found: Stuck, *, stacks: bool = False) -> RenderableType:
    """The cause, what to do, and where each process stands; on request with its whole stack."""
    cause = Text(f"{found.cause[0].upper()}{found.cause[1:]}.", style="bold red" if found.stuck else "bold")
    remedy = [Text(found.remedy)] if found.remedy else []
    table = table_of("process", "who", "state", "waits in", "line")
    for column in (1, 2, 3, 4):
        table.columns[column].justify = "left"
        table.columns[column].overflow = "fold"
    for each in found.processes:
        table.add_row(str(each.pid), each.role, each.state, _waits(each), _line(each))
    shown = [part for each in found.processes for part in _stack(each)] if stacks else []
    return Group(cause, *remedy, Text(""), table, *shown)


def _waits(process: Standing) -> str:
    return f"{process.waits_in}: {process.call}" if process.call else process.waits_in


def _line(process: Standing) -> str:
    at = process.at
    if at is None:
        return ""
    return f"{os.path.basename(at.file)}:{at.line} in {at.function}" + (f"\n{at.source}" if at.source else "")


def _stack(process: Standing) -> list[Text]:
    lines = [Text(f"\n{process.role}, process {process.pid}", style="bold")]
    lines += [Text(f"  {each.function} ({each.file}:{each.line})") for each in process.frames]
    for thread in process.threads:
        lines.append(Text(f"  thread {thread.name}"))
        lines += [Text(f"    {each.function} ({each.file}:{each.line})") for each in thread.frames]
    return lines
