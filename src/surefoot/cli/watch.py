"""The command `surefoot watch`: run your own script unchanged and check its training loop."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from surefoot.cli.shared import (
    AllowOption,
    JsonOption,
    MemoryLimitOption,
    SarifOption,
    keep_sarif,
    limit_bytes,
    rank,
    show,
)
from surefoot.events.budget import OVERHEAD
from surefoot.reports.console import PlainConsole
from surefoot.torch_version import require_torch


def watch(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="your training script; it stays unchanged")],
    args: Annotated[list[str] | None, typer.Argument(metavar="-- ARGS", help="arguments of the script")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="stop the script after this many updates")] = None,
    check_all: Annotated[
        bool,
        typer.Option("--check-all", help="check every step, not only the first hundred and the first evaluation"),
    ] = False,
    overhead: Annotated[
        str,
        typer.Option(
            metavar="SHARE",
            help="how much of the script's own time looking may add, such as 25%; a second and the first 24 updates "
            "are always looked at",
        ),
    ] = f"{OVERHEAD:.0%}",
    run: Annotated[
        Path | None,
        typer.Option(
            "--run", "--dir", metavar="DIR", help="write a run directory for a report; under torchrun use --dir"
        ),
    ] = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="also print memory by account and module, FLOPs, and seconds by phase")
    ] = False,
    infos: Annotated[
        bool, typer.Option("--infos", help="also print infos, one line each; otherwise only how many there are")
    ] = False,
    other: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="SCRIPT|TRACE",
            help="compare the first updates, 3 or --steps, with those of another script or of a file of --trace; "
            "nothing is checked",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="write fingerprints of the first updates, for --against later"),
    ] = None,
    memory_limit: MemoryLimitOption = None,
    allow: AllowOption = None,
    sarif: SarifOption = None,
    json: JsonOption = False,
) -> None:
    """Runs your own script, unchanged, and measures and checks its training loop.

    Prints what it found. It measures the first three updates operator by operator, and only times the rest: --tables
    prints the measurements, --json and --run keep them. Exits with 1 if any finding is an error.

    With --against it only compares: it names the first update, module, operator and line that differ, and exits with 1.

    Examples:

    `surefoot watch train.py --steps 20 -- --lr 1e-3`

    `surefoot watch train.py --against before.py`
    """
    if other is not None or trace is not None:
        _against(script, other, args or [], steps, trace, json=json)
    from surefoot.reports.watched import watched_text
    from surefoot.watch import watch_script

    limit = limit_bytes(memory_limit)
    with redirect_stdout(sys.stderr if json else sys.stdout):
        record = watch_script(
            str(script),
            args or (),
            steps=steps,
            check_all=check_all,
            overhead=_share(overhead),
            sparing=not (tables or json or run is not None),
            allow=allow or (),
            keep=run,
            memory_limit=limit,
        )
    keep_sarif(record.findings, sarif, of=str(script))
    show(record, partial(watched_text, tables=tables, infos=infos), json=json)
    if run is not None and not json and rank() == 0:
        PlainConsole().print(f"run: {run}; see `surefoot report {run}`", style="dim", highlight=False)
    raise typer.Exit(1 if record.findings.errors else 0)


def _against(
    script: Path, other: Path | None, args: list[str], steps: int | None, trace: Path | None, *, json: bool
) -> NoReturn:
    """Compares two scripts, or keeps the trace of one. Exits with 1 if they differ."""
    require_torch()
    from surefoot.reports.compared import scripts_text
    from surefoot.ways.against import UPDATES, against

    named = None if other is None else str(other)
    record = against(str(script), named, args, updates=steps or UPDATES, keep=trace, quiet=json)
    show(record, scripts_text, json=json)
    raise typer.Exit(0 if record.agrees else 1)


def _share(text: str) -> float:
    """A share as people write it: 25% or 0.25."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < float("inf"):
        raise typer.BadParameter(
            f"{text!r} is no share of time; write for example 25% or 0.25", param_hint="--overhead"
        )
    return share
