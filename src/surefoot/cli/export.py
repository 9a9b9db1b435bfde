"""The command `surefoot export`: write the weights and the program of a run to files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.shared import JsonOption, TrustOption, show


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="a run directory, as `surefoot train` makes it")],
    recipe: Annotated[
        str | None, typer.Argument(metavar="RECIPE", help="the recipe that the run was made with, unless built in")
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", metavar="DIR", help="default: RUN/export")] = None,
    weights: Annotated[
        bool, typer.Option("--weights", help="only the weights of the newest checkpoint, put together from its shards")
    ] = False,
    trust_run: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """The weights (safetensors) and the program (torch.export) of a finished run, compared with the model.

    Fails if either file, read back from disk, computes other numbers than the trained model. With `--weights`, the
    run need not be finished, its model may be larger than this machine's memory, and no code is executed.
    Example: `surefoot export runs/first my_recipe.py`
    """
    from surefoot.reports.export import export_text, weights_text
    from surefoot.ways.export import export as way
    from surefoot.ways.export import export_weights

    if weights:
        if recipe or trust_run:
            raise typer.BadParameter("--weights executes nothing: it needs neither a recipe nor --trust-run")
        show(export_weights(str(run), to=str(to) if to else None), weights_text, json=json)
        return
    show(way(str(run), recipe, to=str(to) if to else None, trust_run=trust_run), export_text, json=json)
