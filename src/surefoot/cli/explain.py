"""The command `surefoot explain`: why a run had no memory left, or what a CUDA memory snapshot holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surefoot.cli.shared import JsonOption, show
from surefoot.errors import RunError

if TYPE_CHECKING:
    from surefoot.records.snapshot import MemorySnapshot


def explain(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|SNAPSHOT", help="a run that ended out of memory, or a file of torch.cuda.memory._dump_snapshot"
        ),
    ],
    script: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCRIPT ARGUMENTS", help="the script of the snapshot: its plan is put beside it"),
    ] = None,
    on: Annotated[str, typer.Option("--on", metavar="GPU", help="the GPU that the snapshot comes from")] = "",
    json: JsonOption = False,
) -> None:
    """Explains an out-of-memory error: what held the memory, the lines that made it, and what would fit.

    A snapshot may come from any framework. It is read as data: nothing in it is run. Only a script that you name is
    run, as `surefoot plan` runs it.

    Examples:

    `surefoot explain runs/first`

    `surefoot explain snapshot.pickle`

    `surefoot explain snapshot.pickle --on a100-sxm-80gb -- train.py --batch-size 8`
    """
    if bool(script) != bool(on):
        raise typer.BadParameter("name the script and its GPU: --on h100-sxm -- train.py --batch-size 8")
    if not target.is_dir():
        from surefoot.debug.memory.snapshot import booked_snapshot
        from surefoot.reports.snapshot import snapshot_text

        booked = booked_snapshot(target)
        show(_beside_plan(booked, script, on) if script else booked, snapshot_text, json=json)
        return
    if script:
        raise typer.BadParameter(f"{target} is a run, which has a plan of its own; --on is for a snapshot")
    from surefoot.records.out_of_memory import read_out_of_memory
    from surefoot.reports.out_of_memory import out_of_memory_text

    record = read_out_of_memory(target)
    if record is None:
        raise RunError(
            f"{target} did not end out of memory: it holds no out-of-memory.json; `surefoot report {target}` shows it"
        )
    show(record, out_of_memory_text, json=json)


def _beside_plan(booked: MemorySnapshot, script: list[str], on: str) -> MemorySnapshot:
    from surefoot.debug.memory.planned_snapshot import beside
    from surefoot.planning.scripts.plan_script import plan_script

    return beside(booked, plan_script(script, on=on))
