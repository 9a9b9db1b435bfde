"""Makes docs/measured/devices.md from the records in bench/devices.

    python bench/devices.py

A record is what `surefoot validate` writes as validation.json. To add one, copy it into bench/devices under a name that
says which device it is. What `surefoot validate --share FILE` writes goes into bench/devices/shared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from surefoot.records.codec import read_record
from surefoot.records.validation import MEMORY, SECONDS, Shared, SharedRow, Sides, Validation, read_validation
from surefoot.reports.validation import cells, machine_text, percent
from surefoot.units import amount_text

RECORDS = Path(__file__).parent / "devices"
SHARED = RECORDS / "shared"
PAGE = Path(__file__).parent.parent / "docs" / "measured" / "devices.md"
INTRODUCTION = """\
# Devices

What `surefoot validate` found on each device from which we have a record. It compares plans with the device's own
allocator and clock. `python bench/devices.py` makes this page from the records in `bench/devices`. **If you have a GPU,
please [send your record](../guide/validate.md#send-the-record).**

"Off by" is the distance of the plan from the measurement, as a share of the measurement: +3% means a plan too high.
The worst case counts without its sign.
"""
SUMMARY = ("device", "date", "ran", "peak memory off by", "reserved off by", "step off by")
ACCOUNTS = (MEMORY, "device/reserved", SECONDS)


def page() -> str:
    """The page, from all records."""
    records = {file.stem: read_validation(file) for file in sorted(RECORDS.glob("*.json"))}
    lines = [INTRODUCTION, *_row(SUMMARY), *_row(["---", "---", "---:", "---:", "---:", "---:"])]
    for found in records.values():
        lines += _row(
            [machine_text(found.machine), found.date, _ran(found), *(_errors(found, each) for each in ACCOUNTS)]
        )
    for found in records.values():
        lines += _device(found)
    lines += _shared([read_record(Shared, file) for file in sorted(SHARED.glob("*.json"))])
    return "\n".join(lines) + "\n"


def _shared(records: Sequence[Shared]) -> Iterator[str]:
    """One row for each recipe of each record that somebody shared."""
    yield from ("", "## Shared by others", "")
    yield "Sent in with `surefoot validate --share FILE`; each row is a recipe on somebody's device, as it was sent."
    yield ""
    yield from _row(("device", "torch", "date", "preflight", "recipe", "peak memory", "measured", "step", "measured"))
    yield from _row(["---", "---", "---", "---", "---", *["---:"] * 4])
    for each in records:
        states = Counter(part.status for part in each.preflight)
        about = (f"{each.count} x {each.device}", each.versions.get("torch", "?"), each.date)
        parts = ", ".join(f"{count} {status}" for status, count in states.items())
        for row in each.cases:
            sides = (_sides(row, "memory_bytes", "bytes"), _sides(row, "step_seconds", "seconds"))
            yield from _row((*about, parts, f"`{row.name}`", *sides[0], *sides[1]))
    if not records:
        yield from ("", "None so far.")


def _sides(row: SharedRow, name: str, unit: str) -> tuple[str, str]:
    sides = row.amounts.get(name, Sides(None, None))
    planned, measured = ("-" if side is None else amount_text(side, unit) for side in (sides.planned, sides.measured))
    return planned, measured


def _device(found: Validation) -> Iterator[str]:
    """The table of one device."""
    versions = ", ".join(f"{name} {version}" for name, version in found.machine.versions.items())
    yield from ("", f"## {found.machine.device}", "")
    yield f"{machine_text(found.machine)}. {found.date}, `surefoot validate --minutes {found.minutes:g}`; {versions}."
    yield ""
    yield from _row(("recipe", "knobs", "peak memory", "measured", "off by", "step", "measured", "off by", "MFU"))
    yield from _row(["---", "---", *["---:"] * 7])
    for row in found.rows:
        mfu = "-" if row.mfu is None else percent(row.mfu)
        knobs = f"`{' '.join((row.recipe, *row.words))}`"
        yield from _row((row.name, knobs, *cells(row, MEMORY), *cells(row, SECONDS), mfu))
    notes = [f"- {row.name} {row.status}: {row.reason}" for row in found.rows if row.reason]
    yield from ("", *notes) if notes else ()
    if found.fits:
        yield from ("", "What fits there, by plan:", "")
        yield from (f"- `{each.model}`: {each.answer}" for each in found.fits)


def _ran(found: Validation) -> str:
    return f"{sum(row.status == 'measured' for row in found.rows)} of {len(found.rows)}"


def _errors(found: Validation, account: str) -> str:
    errors = found.typical_and_worst(account)
    return "-" if errors is None else f"{percent(errors[0])} median, {percent(errors[1])} worst"


def _row(words: tuple[str, ...] | list[str]) -> Iterator[str]:
    yield f"| {' | '.join(word.replace('|', '/') for word in words)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name} from {len(list(RECORDS.glob('*.json')))} records")
