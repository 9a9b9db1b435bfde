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
    keep_known,
    keep_sarif,
    limit_bytes,
    rank,
    show,
)
from surefoot.errors import RecipeError, RunError
from surefoot.events.watch_budget import OVERHEAD
from surefoot.recipe.kind import kind_of
from surefoot.reports.console import PlainConsole
from surefoot.torch_inside.version import require_torch

UNTRAINED = 2
"""The exit code if no training was seen."""


def watch(
    script: Annotated[
        Path,
        typer.Argument(
            metavar="SCRIPT", help="your training script or notebook; it stays unchanged. A recipe is checked instead"
        ),
    ],
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
            help="how much of the script's own CPU time looking may add, such as 25%; it may always take 0.8 "
            "seconds, and looks at 8 updates and the first evaluation at least",
        ),
    ] = f"{OVERHEAD:.0%}",
    run: Annotated[
        Path | None,
        typer.Option(
            "--run", "--dir", metavar="DIR", help="write a run directory for a report; under torchrun use --dir"
        ),
    ] = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="also print memory by kind and module, FLOPs, and seconds by phase")
    ] = False,
    infos: Annotated[
        bool, typer.Option("--infos", help="also print infos, one line each; otherwise only how many there are")
    ] = False,
    data: Annotated[
        bool,
        typer.Option("--data", help="also print what training and validation were given, side by side"),
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
    prints the measurements, --json and --run keep them. Exits with 1 if any finding is an error, and with 2 if it saw
    no training: no backward pass and no update.

    A notebook (.ipynb) runs cell by cell, without Jupyter. Lines that only IPython runs (% and !) are skipped.

    With --against it only compares: it names the first update, module, operator and line that differ, and exits with 1.

    Examples:

    `surefoot watch train.py --steps 20 -- --lr 1e-3`

    `surefoot watch train.py --against before.py`
    """
    kind = kind_of(str(script))
    if kind == "recipe":
        given = {"--run": run, "--against": other, "--trace": trace, "--memory-limit": memory_limit, "--steps": steps}
        _check(str(script), args, allow, sarif, json=json, given=[name for name, each in given.items() if each])
    if kind == "neither" and script.is_file() and script.suffix != ".py":
        raise RunError(f"{script} is not a Python script, a notebook or a recipe; `watch` runs train.py or train.ipynb")
    if other is not None or trace is not None:
        _against(script, other, args or [], steps, trace, json=json)
    from surefoot.reports.watched import watched_text
    from surefoot.watch import watch_script

    limit = limit_bytes(memory_limit)
    try:
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
                data=data,
            )
    except (RuntimeError, MemoryError) as error:
        _add_arguments(error, str(script), args or [])
        raise
    keep_sarif(record.findings, sarif, of=str(script))
    show(record, partial(watched_text, tables=tables, infos=infos), json=json)
    if run is not None and not json and rank() == 0:
        PlainConsole().print(f"run: {run}; see `surefoot report {run}`", style="dim", highlight=False)
    if record.findings.errors:
        raise typer.Exit(1)
    from surefoot.events.rank_notes import all_ranks

    trained = record.trained or record.failure or record.findings.failure
    raise typer.Exit(UNTRAINED if all_ranks(not trained) else 0)  # else torchrun would end ranks that still train


def _add_arguments(error: Exception, script: str, args: list[str]) -> None:
    """If memory ran out, adds the arguments that would fit to what the error and the run directory say of it."""
    from surefoot.debug.memory.out_of_memory import attached

    known = attached(error)
    if known is None or rank() > 0 or not script.endswith(".py"):
        return
    from surefoot.planning.scripts.fitting_arguments import with_arguments
    from surefoot.world.this_machine import present

    on = None if known.device == "cpu" else present(1)
    if on is not None or known.limit_bytes is not None:
        PlainConsole(stderr=True).print("out of memory: planning the script with other arguments ...", style="dim")
    keep_known(error, with_arguments(known, script, args, on=on))


def _check(
    recipe: str, knobs: list[str] | None, allow: list[str] | None, sarif: Path | None, *, json: bool, given: list[str]
) -> NoReturn:
    """Checks a recipe as `surefoot check` does. Exits with 1 if a finding is an error."""
    from surefoot.cli.check import check

    if given:
        raise RecipeError(f"{recipe} is a recipe, and {given[0]} needs a script: use `surefoot train {recipe}`")
    told = f"{recipe} is a recipe: checking it as `surefoot check {recipe}` does"
    PlainConsole(stderr=json, quiet=rank() > 0).print(told, style="dim", highlight=False)
    check(recipe, knobs, allow=allow, sarif=sarif, json=json)
    raise typer.Exit(0)


def _against(
    script: Path, other: Path | None, args: list[str], steps: int | None, trace: Path | None, *, json: bool
) -> NoReturn:
    """Compares two scripts, or keeps the trace of one. Exits with 1 if they differ."""
    require_torch()
    from surefoot.debug.runs.against import UPDATES, against
    from surefoot.reports.compared import scripts_text

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
