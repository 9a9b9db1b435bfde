"""The command `surefoot explain`: why a run had no memory left, or what a CUDA memory snapshot holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.shared import JsonOption, show
from surefoot.errors import RunError


def explain(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|SNAPSHOT", help="a run that ended out of memory, or a file of torch.cuda.memory._dump_snapshot"
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Explains an out-of-memory error: what held the memory, the lines that made it, and what would fit.

    A snapshot may come from any framework. It is read as data: nothing in it is run.

    Examples:

    `surefoot explain runs/first`

    `surefoot explain snapshot.pickle`
    """
    if not target.is_dir():
        from surefoot.explain.snapshot import booked_snapshot
        from surefoot.reports.snapshot import snapshot_text

        show(booked_snapshot(target), snapshot_text, json=json)
        return
    from surefoot.records.out_of_memory import read_out_of_memory
    from surefoot.reports.out_of_memory import out_of_memory_text

    record = read_out_of_memory(target)
    if record is None:
        raise RunError(
            f"{target} did not end out of memory: it holds no out-of-memory.json; `surefoot report {target}` shows it"
        )
    show(record, out_of_memory_text, json=json)
