"""A validation as text: the machine, each recipe as planned and measured, and what fits."""

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.validation import MEMORY, SECONDS, Machine, Part, Row, Validation
from surefoot.reports.parts import table_of
from surefoot.units import amount_text, bytes_text, counted


def validation_text(found: Validation) -> RenderableType:
    """The verdict, a table of all recipes, what failed and why, and what fits."""
    return Group(
        Text(verdict(found), style="bold red" if found.failed or found.failed_parts else "bold"),
        Text(),
        *(Text(part_line(part), style="yellow" if part.status == "failed" else "") for part in found.preflight),
        *([Text()] if found.preflight else []),
        *([_table(found)] if found.rows else []),
        *(Text(f"{row.name} {row.status}: {row.reason}", style="yellow") for row in found.rows if row.reason),
        Text(),
        *(Text(f"{account}: {said}") for account, said in by_account(found).items()),
        *_fits(found),
    )


def machine_text(machine: Machine) -> str:
    """The device in one line."""
    what = (
        f"{machine.count} cores of {machine.device}" if machine.kind == "cpu" else f"{machine.count} x {machine.device}"
    )
    return f"{what}, {bytes_text(machine.memory_bytes)}, torch {machine.versions.get('torch', '?')}"


def verdict(found: Validation) -> str:
    """How many recipes ran, and how close their plans were."""
    ran = sum(row.status == "measured" for row in found.rows)
    parts = [preflight_line(found)] if found.preflight else []
    if found.rows or not parts:
        parts.append(f"{ran} of {counted(len(found.rows), 'recipe')} ran")
    for name, account in (("memory", MEMORY), ("seconds", SECONDS)):
        if (errors := found.typical_and_worst(account)) is not None:
            parts.append(f"{name} {_closeness(*errors)}")
    return "; ".join(parts)


def _closeness(typical: float, worst: float, row: str) -> str:
    """The median and the largest error, in words."""
    if not worst:
        return "as planned"
    return f"off by {percent(typical)} in the median, {percent(worst)} at worst ({row})"


def percent(share: float, *, signed: bool = False) -> str:
    """A share in percent, with as many digits as it needs."""
    if abs(share) < 5e-5:
        return "<0.01%" if share else "0%"
    digits = 0 if abs(share) >= 0.1 else 1 if abs(share) >= 0.01 else 2
    return f"{share:{'+' if signed else ''}.{digits}%}"


def cells(row: Row, account: str) -> tuple[str, str, str]:
    """Planned, measured, and how far the plan is off."""
    entry, error = row.entry(account), row.error(account)
    sides = (None, None) if entry is None else (entry.predicted, entry.measured)
    planned, measured = ("-" if side is None or entry is None else amount_text(side, entry.unit) for side in sides)
    return planned, measured, "-" if error is None else percent(error, signed=True)


def preflight_line(found: Validation) -> str:
    """How many parts of the preflight were ok, failed and did not run."""
    count = {status: sum(part.status == status for part in found.preflight) for status in ("ok", "failed", "not run")}
    said = [f"{number} {status}" for status, number in count.items() if number]
    return f"preflight: {', '.join(said)}"


def part_line(part: Part) -> str:
    """A part of the preflight as it is told when it is done."""
    return f"{part.name}: {part.status}: {part.said}"


def row_line(row: Row) -> str:
    """A row as it is told when it is done."""
    if row.status != "measured":
        return f"{row.name}: {row.status}: {row.reason}"
    _, memory, memory_error = cells(row, MEMORY)
    _, seconds, seconds_error = cells(row, SECONDS)
    return f"{row.name}: {memory} (plan {memory_error}), {seconds} a step (plan {seconds_error})"


def by_account(found: Validation) -> dict[str, str]:
    """Memory of the device, collectives and phases: how far plans are off over all recipes."""
    names = [f"device/{name}" for name in ("requested", "allocated", "reserved", "used")]
    entries = [entry for row in found.rows for entry in row.ledger.entries]
    names += sorted({entry.account for entry in entries if entry.account.startswith(("traffic/", "collectives/"))})
    names += [f"seconds/{name}" for name in ("forward", "loss", "backward", "update")]
    errors = {name: found.typical_and_worst(name) for name in names}
    return {name: _closeness(*error) for name, error in errors.items() if error is not None}


def _table(found: Validation) -> RenderableType:
    mfu = any(row.mfu is not None for row in found.rows)
    table = table_of("recipe", "memory", "measured", "", "step", "measured", "", *(("MFU",) if mfu else ()))
    for row in found.rows:
        reached = "-" if row.mfu is None else f"{row.mfu:.1%}"
        table.add_row(row.name, *cells(row, MEMORY), *cells(row, SECONDS), *((reached,) if mfu else ()))
    return table


def _fits(found: Validation) -> list[RenderableType]:
    if not found.fits:
        return []
    lines: list[RenderableType] = [Text("\nwhat fits", style="bold")]
    for each in found.fits:
        lines.append(Text(f"{each.model}: {each.answer}"))
        if each.command:
            lines.append(Text(f"  {each.command}", style="cyan"))
    return lines
