"""A probed script as text: the findings, a table of what it responds to, and what the runs cost."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surefoot.records.probed import Probed
from surefoot.reports.findings import findings_list
from surefoot.units import counted

_COLOUR = {"as expected": "green", "finding": "yellow", "unclear": "cyan", "not tried": "dim"}


def probed_text(probed: Probed) -> RenderableType:
    """The findings, then one row for each experiment."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("experiment", ratio=3)
    table.add_column("what was measured", ratio=5)
    table.add_column("outcome", no_wrap=True)
    for each in probed.experiments:
        table.add_row(each.name, each.seen, Text(each.outcome, _COLOUR[each.outcome]))
    return Group(
        *findings_list(probed.findings, costs=(), infos="whole"),
        Text(_head(probed), style="bold"),
        table,
        *(Text(f"note: {each}", style="dim") for each in probed.notes),
        Text(_end(probed)),
    )


def _head(probed: Probed) -> str:
    inputs, targets = (", ".join(each) for each in (probed.inputs, probed.targets))
    return f"{probed.script}: inputs {inputs or 'not known'}; targets {targets or 'where they meet outputs'}"


def _end(probed: Probed) -> str:
    found = len(probed.findings.findings)
    said = counted(found, "finding") if found else "nothing found"
    return (
        f"{probed.script}: {said} in {counted(probed.runs, 'run')} of up to {probed.updates} updates and "
        f"{probed.copies} copies of an evaluation; {probed.cpu_seconds:.0f} CPU seconds."
    )
