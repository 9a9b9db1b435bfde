"""The command `surefoot merge`: write a fine-tuned run as a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.shared import JsonOption, RecipeOfRunArgument, TrustOption, show
from surefoot.torch_inside.version import require_torch


def merge(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="a finished run directory of `surefoot train`")],
    recipe: RecipeOfRunArgument = None,
    to: Annotated[Path | None, typer.Option("--to", metavar="DIR", help="where to write; default: RUN/merged")] = None,
    trust_run: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Adds the adapters of a run to its weights and writes them as a Hugging Face folder.

    Fails if the folder, read back by transformers, computes other numbers than the trained model with its adapters.
    `surefoot export` writes the adapters alone.

    Example: `surefoot merge runs/tuned --to tuned-model`
    """
    require_torch()
    from surefoot.exports.merge import merge as way
    from surefoot.reports.merged import merged_text

    show(way(str(run), recipe, to=str(to) if to else None, trust_run=trust_run), merged_text, json=json)
