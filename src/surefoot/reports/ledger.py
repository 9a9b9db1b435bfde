"""A ledger as text: predicted beside measured."""

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.ledger import Entry, Ledger
from surefoot.reports.html import difference_text
from surefoot.reports.parts import table_of
from surefoot.units import amount_text


def ledger_text(ledger: Ledger) -> RenderableType:
    """A table of account, predicted, measured and difference; below it, where the differences come from."""
    if all(entry.predicted is None for entry in ledger.entries):
        return _one_side(ledger)
    table = table_of("account", "predicted", "measured", "difference")
    for entry in ledger.entries:
        table.add_row(entry.account, *_sides(entry), _difference_text(entry))
    told = [(entry.account, "; ".join(filter(None, (entry.attribution, entry.cause)))) for entry in ledger.entries]
    return Group(table, *(Text(f"{account}: {why}", style="yellow") for account, why in told if why))


def _one_side(ledger: Ledger) -> RenderableType:
    """The table of a ledger without a plan."""
    table = table_of("account", "measured")
    for entry in ledger.entries:
        table.add_row(entry.account, _sides(entry)[1])
    return table


def _sides(entry: Entry) -> tuple[str, str]:
    sides = (entry.predicted, entry.measured)
    left, right = ("-" if amount is None else amount_text(amount, entry.unit) for amount in sides)
    return left, right


def _difference_text(entry: Entry) -> Text:
    style = {True: "green" if entry.difference == 0 else "", False: "red", None: "dim"}[entry.agrees]
    return Text(difference_text(entry), style=style)
