"""Two plans side by side, as text for a terminal."""

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.plan_changes import Change, PlanChanges
from surefoot.reports.parts import table_of
from surefoot.units import amount_text


def plan_changes_text(found: PlanChanges) -> RenderableType:
    """The changed knobs, every amount in both plans, and the reasons for the differences."""
    turned = table_of("changed", "before", "after")
    for each in found.turned:
        turned.add_row(each.name, str(each.before), str(each.after))
    amounts = table_of("", found.before, found.after, "difference", "")
    for change in found.changes:
        if not (change.before is None and change.after is None):
            amounts.add_row(*_row(change))
    same = [] if found.turned else [Text("no knob differs", style="dim")]
    return Group(*same, *([turned] if found.turned else []), Text(), amounts, Text(), *map(Text, found.reasons))


def _row(change: Change) -> tuple[str, ...]:
    account, _, part = change.account.partition("/")
    name = f"  {part}" if part else account
    difference = change.difference
    if difference is None:
        return name, _side(change, change.before), _side(change, change.after), "", ""
    sign = "+" if difference > 0 else "-" if difference < 0 else ""
    ratio = "" if not difference or change.ratio is None else f"x {change.ratio:.3g}"
    said = f"{sign}{amount_text(abs(difference), change.unit)}" if difference else "same"
    return name, _side(change, change.before), _side(change, change.after), said, ratio


def _side(change: Change, amount: float | None) -> str:
    return "-" if amount is None else amount_text(amount, change.unit)
