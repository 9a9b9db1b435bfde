"""The command `surefoot compare`: where two runs that should agree begin to differ, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.shared import JsonOption, RecipeOfRunArgument, TrustOption, show, within
from surefoot.torch_inside.version import require_torch


def compare(
    first: Annotated[Path, typer.Argument(metavar="RUN_A", help="a run directory")],
    second: Annotated[Path, typer.Argument(metavar="RUN_B", help="another one, which should agree with it")],
    recipe: RecipeOfRunArgument = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            callback=within(0),
            help="the largest relative difference of losses and gradient norms; default: none on the same layout, "
            "torch, threads and device, else 1e-4, with less than float32 1e-2",
        ),
    ] = None,
    replay: Annotated[bool, typer.Option(help="replay the step where they part")] = True,
    trust_run: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Finds the first step at which two runs differ, what differs in how they were made, and the first operator.

    It compares the logs, then replays the step of both from their checkpoints and names the first module and operator
    whose values differ, and whether the batch, the parameters, the arithmetic or the update differed. Exits with 0 if
    the runs agree and with 1 if they differ.

    Example: `surefoot compare runs/before runs/after`
    """
    require_torch()
    from surefoot.debug.runs.compare import compare as way
    from surefoot.reports.compared import compared_text

    record = way(str(first), str(second), recipe, trust_run=trust_run, tolerance=tolerance, replay=replay)
    show(record, compared_text, json=json)
    raise typer.Exit(0 if record.agrees else 1)
