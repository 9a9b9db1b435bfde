"""The command `surefoot validate`: hold plans against measurements on this machine, and write a record to send in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surefoot.cli.shared import JsonOption, show
from surefoot.reports.console import PlainConsole

if TYPE_CHECKING:
    from surefoot.records.validation import Machine, Part, Row


def validate(
    minutes: Annotated[float, typer.Option(min=0.5, max=1440, help="about how long it may take")] = 10,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="where to write validation.json and validation.html")
    ] = Path("validation"),
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="run only this part or recipe; may be repeated")
    ] = None,
    share: Annotated[
        Path | None, typer.Option("--share", metavar="FILE", help="also write a small anonymous JSON for an issue")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Tries the device that is here, then runs a dozen recipes and compares memory, seconds and collectives with plans.

    First the preflight: memory, a step in each precision, a kill and a resume, watching, the profiler, an all-reduce.
    Sizes of recipes are chosen by plan, so that they fit the device and the time. It exits with 1 if something fails;
    the rest goes on. It also searches for what fits this device. The record names the device and the versions, but no
    path, host or user, so that you can send it in; `--share` writes the short one that an issue takes.

    Example: `surefoot validate --minutes 10 --out validation`
    """
    from surefoot.plain_files import make_folder
    from surefoot.records.validation import PAGE, write_shared, write_validation
    from surefoot.reports.validation import machine_text, part_line, row_line, validation_text
    from surefoot.reports.validation_page import write_validation_page
    from surefoot.torch_inside.version import require_torch
    from surefoot.validation.run import validate as run

    require_torch()
    for folder in [out, *([share.parent] if share else [])]:
        make_folder(folder)  # a folder that cannot be written is refused now, not after the measurements
    console = PlainConsole(stderr=True, highlight=False)

    def tell_machine(machine: Machine) -> None:
        console.print(f"validating {machine_text(machine)}, in about {minutes:g} minutes")

    def tell(number: int, count: int, row: Row) -> None:
        console.print(f"{number}/{count} {row_line(row)}")

    def tell_part(part: Part) -> None:
        console.print(part_line(part))

    found = run(minutes=minutes, only=only or (), tell_machine=tell_machine, tell_part=tell_part, tell=tell)
    written = write_validation(out, found)
    write_validation_page(found, out / PAGE)
    if share is not None:
        write_shared(share, found)
    show(found, validation_text, json=json)
    if not json:
        also = f"{written}, {share}" if share else f"{written}"
        PlainConsole().print(f"\nwrote {also} and {out / PAGE}", style="dim", highlight=False)
    sys.stdout.flush()
    raise typer.Exit(1 if found.failed or found.failed_parts else 0)
