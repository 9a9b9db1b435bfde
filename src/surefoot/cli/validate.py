"""The command `surefoot validate`: hold plans against measurements on this machine, and write a record to send in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surefoot.cli.shared import JsonOption, show
from surefoot.reports.console import PlainConsole

if TYPE_CHECKING:
    from surefoot.records.validation import Machine, Row


def validate(
    minutes: Annotated[float, typer.Option(min=0.5, max=1440, help="about how long it may take")] = 10,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="where to write validation.json and validation.html")
    ] = Path("validation"),
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="run only this recipe; may be repeated")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Runs a dozen recipes on the device that is here, and compares memory, seconds and collectives with their plans.

    Sizes are chosen by plan, so that they fit the device and the time. Each recipe has its own process. It exits with 1
    if one fails; the others go on. It also searches for what fits this device. The record names the device and the
    versions, but no path, host or user, so that you can send it in.

    Example: `surefoot validate --minutes 10 --out validation`
    """
    from surefoot.records.files import make_folder
    from surefoot.records.validation import PAGE, write_validation
    from surefoot.reports.validation import machine_text, row_line, validation_text
    from surefoot.reports.validation_page import write_validation_page
    from surefoot.torch_version import require_torch
    from surefoot.validation.run import validate as run

    require_torch()
    make_folder(out)  # a folder that cannot be written is refused now, not after the measurements
    console = PlainConsole(stderr=True, highlight=False)

    def tell_machine(machine: Machine) -> None:
        console.print(f"validating {machine_text(machine)}, in about {minutes:g} minutes")

    def tell(number: int, count: int, row: Row) -> None:
        console.print(f"{number}/{count} {row_line(row)}")

    found = run(minutes=minutes, only=only or (), tell_machine=tell_machine, tell=tell)
    written = write_validation(out, found)
    write_validation_page(found, out / PAGE)
    show(found, validation_text, json=json)
    if not json:
        PlainConsole().print(f"\nwrote {written} and {out / PAGE}", style="dim", highlight=False)
    sys.stdout.flush()
    raise typer.Exit(1 if found.failed else 0)
