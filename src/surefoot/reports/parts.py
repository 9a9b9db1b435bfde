"""Parts of several texts: the title line of a recipe, whether it fits, plain tables, a finding."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from surefoot.records.finding import Finding
from surefoot.records.plan import Fit, Plan
from surefoot.reports.source_lines import changed_line, marked_lines
from surefoot.units import bytes_text, knobs_text

_COLOUR = {"error": "red", "warning": "yellow", "info": "cyan"}


def title(name: str, knobs: dict[str, str | int | float | bool | None], about: str = "") -> RenderableType:
    """A recipe's name, what it learns, and its knobs."""
    lines = Table.grid(padding=(0, 2))
    settings = Text(knobs_text(knobs), style="dim")
    lines.add_row(Text(name, style="bold"), Text(about) if about else settings)
    if about and knobs:
        lines.add_row("", settings)
    return lines


def fit_text(fit: Fit) -> str:
    """Whether a step fits the device, and by how much."""
    by = bytes_text(abs(fit.memory_bytes - fit.total_bytes))
    return f"fits {fit.device}, {by} to spare" if fit.fits else f"does not fit {fit.device}, {by} too much"


def host_text(plan: Plan) -> str:
    """What waits in host memory, for one rank and for a node. Empty if nothing does."""
    host = plan.host
    if host is None:
        return ""
    node = f", {bytes_text(host.total_bytes)} for the {host.ranks} ranks of a node" if host.ranks > 1 else ""
    size = f"of {bytes_text(host.memory_bytes)}" if host.memory_bytes else "the size of the host is not known"
    each = " for each rank" if host.ranks > 1 else ""
    return f"{bytes_text(host.rank_bytes)} of pinned memory{each}{node}, {size}"


def table_of(*columns: str) -> Table:
    """A table without lines: the first column to the left, the others to the right."""
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 else "right")
    return made


def finding_line(finding: Finding) -> Text:
    """A finding in one line, cut where the terminal ends."""
    line = Text.assemble(_head(finding), f"  {finding.where}: {finding.seen}")
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _head(finding: Finding) -> Text:
    return Text.assemble((finding.severity, f"bold {_COLOUR[finding.severity]}"), " ", (finding.check, "bold"))


def finding_text(finding: Finding) -> RenderableType:
    """The lines at fault, then what surefoot saw, why it hurts, the remedy, and the change if it is certain."""
    body = Table.grid(padding=(0, 2))
    body.add_column(style="dim")
    body.add_column()
    shown = [f"{each.file}:{each.line}" for each in finding.marks[:1]]
    for label in ("seen", "where", "why", "remedy"):
        if label != "where" or finding.where not in shown:
            body.add_row(label, getattr(finding, label))
    if finding.edit is not None:
        body.add_row("change", changed_line(finding.edit))
    lines = [*marked_lines(finding.marks), *([Text()] if finding.marks else [])]
    return Group(_head(finding), *lines, Padding(body, (0, 0, 1, 2), expand=False))
