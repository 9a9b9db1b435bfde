"""A plan compared with its budget, as text for a terminal."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.search import Limit
from surefoot.units import amount_text


def limits_text(limits: Iterable[Limit]) -> RenderableType:
    """One line for each limit: whether it holds, and by how much."""
    return Group(Text(), *(Text(limit_line(limit), style="green" if limit.holds else "bold red") for limit in limits))


def limit_line(limit: Limit) -> str:
    """`memory: 35.67 GiB of 30.00 GiB that the budget allows: 5.67 GiB too much`."""
    amount, allowed = amount_text(limit.amount, limit.unit), amount_text(limit.allowed, limit.unit)
    by = amount_text(abs(limit.excess), limit.unit)
    said = f"{by} to spare" if limit.holds else f"{by} too much"
    verb = "allows" if limit.whose == "the budget" else "has"
    margin = f" beside a margin of {amount_text(limit.margin, limit.unit)}" if limit.margin else ""
    return f"{limit.name}: {amount} of {allowed} that {limit.whose} {verb}{margin}: {said}"
