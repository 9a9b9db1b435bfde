"""The command `surefoot replay`: why the loss of a step jumped or became NaN."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.shared import JsonOption, RecipeOfRunArgument, TrustOption, show
from surefoot.torch_inside.version import require_torch


def replay(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="a run directory")],
    recipe: RecipeOfRunArgument = None,
    step: Annotated[
        int | None, typer.Option("--step", min=1, help="default: the first NaN, or the largest spike of the loss")
    ] = None,
    trust_run: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Says why the loss of a step jumped or became NaN: replays it with one thing changed at a time.

    It varies the samples of the batch, the learning rate of the updates before, and the precision, of all modules and
    of one. Exits with 0 if no step stands out, and with 1 if one does.

    Example: `surefoot replay runs/first --step 812`
    """
    require_torch()
    from surefoot.debug.spikes.replay import replay as way
    from surefoot.reports.spike import attribution_text

    record = way(str(run), recipe, step=step, trust_run=trust_run)
    show(record, attribution_text, json=json)
    raise typer.Exit(0 if record.symptom is None else 1)
