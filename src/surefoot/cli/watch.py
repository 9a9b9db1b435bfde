"""The command `surefoot watch`: run your own script unchanged and check its training loop."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.shared import AllowOption, JsonOption, SarifOption, keep_sarif, show


def watch(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="a training script, left as it is")],
    args: Annotated[list[str] | None, typer.Argument(metavar="-- ARGS", help="arguments of the script")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="stop the script after this many updates")] = None,
    check_all: Annotated[
        bool,
        typer.Option("--check-all", help="check every step, not only the first hundred and the first evaluation"),
    ] = False,
    run: Annotated[
        Path | None,
        typer.Option("--run", "--dir", metavar="DIR", help="keep a run directory, for a report; torchrun needs --dir"),
    ] = None,
    allow: AllowOption = None,
    sarif: SarifOption = None,
    json: JsonOption = False,
) -> None:
    """Runs a script of your own, unchanged, and books and checks its training loop.

    The first three updates are booked, operator by operator; the rest only by the clock. Exits with 1 if anything
    found is an error. Example: `surefoot watch train.py --steps 20 -- --lr 1e-3`
    """
    from surefoot.reports.watched import watched_text
    from surefoot.watch import watch_script

    with redirect_stdout(sys.stderr if json else sys.stdout):
        record = watch_script(str(script), args or (), steps=steps, check_all=check_all, allow=allow or (), keep=run)
    keep_sarif(record.findings, sarif)
    show(record, watched_text, json=json)
    raise typer.Exit(1 if record.findings.errors else 0)
