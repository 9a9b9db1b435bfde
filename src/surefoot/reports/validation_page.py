"""A validation as one HTML page to look at and to send. It needs no chart library and runs no script."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from surefoot.plain_files import write_whole
from surefoot.records.validation import MEMORY, SECONDS, Machine, Row, Validation
from surefoot.reports.html import html_table, ledger_table
from surefoot.reports.markup import Markup, joined, markup
from surefoot.reports.page import document
from surefoot.reports.validation import by_account, cells, machine_text, percent, verdict
from surefoot.units import bytes_text, count_text, flops_text, seconds_text

RESERVED = "device/reserved"


def write_validation_page(found: Validation, file: Path) -> None:
    """Writes the page completely or not at all."""
    write_whole(file, validation_page(found), shared=True)


def validation_page(found: Validation) -> str:
    """The HTML of the page."""
    return document(f"surefoot validate: {found.machine.device}", joined(_body(found)))


def _body(found: Validation) -> Iterator[Markup]:
    made = f"surefoot {version('surefoot')} validate · {found.date} · {machine_text(found.machine)}"
    yield markup('<header><div class="made">{}</div>', made)
    yield markup(
        '<h1 class="{}">{}</h1>', "bad" if found.failed or found.failed_parts else "good", verdict(found) + "."
    )
    yield _facts(found.machine)
    yield Markup("</header>")
    if found.preflight:
        parts = [[part.name, part.status, part.said] for part in found.preflight]
        yield markup("<h2>Preflight</h2>{}", html_table(["part", "", "what it found"], parts, numbers=()))
    yield markup("<h2>Planned and measured</h2>{}", _table(found))
    yield markup('<p class="note">{}</p>', "Percentages say how far the plan is off: +3% means that it is too high.")
    accounts = [list(each) for each in by_account(found).items()]
    yield markup("<h2>By account</h2>{}", html_table(["account", "plan over all recipes"], accounts, numbers=()))
    if found.fits:
        rows = [[each.model, each.answer, each.command] for each in found.fits]
        yield markup("<h2>What fits</h2>{}", html_table(["model", "answer", "command"], rows, numbers=()))
    yield Markup("<h2>Every recipe</h2>")
    yield from map(_details, found.rows)


def _facts(machine: Machine) -> Markup:
    facts = {
        "device": machine.device,
        "GPUs" if machine.kind != "cpu" else "cores": str(machine.count),
        "memory": bytes_text(machine.memory_bytes),
        "planned as": machine.datasheet,
        **{f"fastest {name} product": f"{flops_text(rate)}/s" for name, rate in machine.reached_flops.items()},
        "memory bandwidth": f"{bytes_text(machine.memory_bandwidth)}/s" if machine.memory_bandwidth else "",
        **machine.versions,
        **machine.settings,
    }
    shown = joined(markup("<div><span>{}</span><strong>{}</strong></div>", *each) for each in facts.items() if each[1])
    return markup('<div class="facts">{}</div>', shown)


def _table(found: Validation) -> Markup:
    reserves = any(row.entry(RESERVED) for row in found.rows)
    accounts = [MEMORY, *([RESERVED] if reserves else []), SECONDS]
    titles = {MEMORY: "peak memory", RESERVED: "reserved", SECONDS: "step"}
    columns = [column for account in accounts for column in (titles[account], "measured", "plan off by")]
    rows = [
        [_named(row), *(cell for account in accounts for cell in cells(row, account)), *_mfu(row)] for row in found.rows
    ]
    return html_table(["recipe", *columns, "MFU planned", "measured"], rows)


def _named(row: Row) -> str:
    return row.name if row.status == "measured" else f"{row.name} ({row.status})"


def _mfu(row: Row) -> tuple[str, str]:
    planned, measured = ("-" if share is None else percent(share) for share in (row.mfu_planned, row.mfu))
    return planned, measured


def _details(row: Row) -> Markup:
    command = " ".join(("surefoot profile", row.recipe, *row.words))
    ranks = f"{row.ranks} ranks, " if row.ranks > 1 else ""
    facts = f"{count_text(row.parameters)} parameters, {count_text(row.tokens_per_step)} {row.unit}s per step, {ranks}"
    took = f"{len(row.step_seconds)} steps timed; the row took {seconds_text(row.seconds)}"
    said = joined(markup('<p class="note">{}</p>', line) for line in (row.reason, command, facts + took) if line)
    summary = "<details><summary>{}</summary>{}{}</details>"
    return markup(summary, _named(row), said, ledger_table(row.ledger))
