"""The command `surefoot export`: write the weights and the program of a run to files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.shared import JsonOption, RecipeOfRunArgument, TrustOption, show
from surefoot.exports.format_table import GGUF_KINDS, format_names
from surefoot.torch_inside.version import require_torch


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="a run directory of `surefoot train`")],
    recipe: RecipeOfRunArgument = None,
    to: Annotated[Path | None, typer.Option("--to", metavar="DIR", help="where to write; default: RUN/export")] = None,
    network: Annotated[
        str | None, typer.Option("--network", help="of a recipe with several networks, the one to write as a program")
    ] = None,
    format: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help=f"in place of pt2: {format_names()}; may be repeated",
        ),
    ] = None,
    quantize: Annotated[
        list[str] | None,
        typer.Option(
            "--quantize",
            metavar="KIND",
            help="also write linear layers in int8 or int8-dynamic, or with --format gguf a file in one of llama.cpp's "
            f"types ({', '.join(GGUF_KINDS)}), and say what that costs; may be repeated",
        ),
    ] = None,
    weights: Annotated[
        bool, typer.Option("--weights", help="write only the weights of the newest checkpoint, merged from its shards")
    ] = False,
    trust_run: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Writes weights (safetensors) and program (torch.export) of a finished run, and compares both with the model.

    Fails if a file, read back from disk and run, computes other numbers than the trained model. With `--weights`, the
    run need not be finished, its model may be larger than this machine's memory, and no code is executed.

    Example: `surefoot export runs/first my_recipe.py`
    """
    require_torch()
    from surefoot.reports.export import export_text, weights_text
    from surefoot.ways.export import export as way
    from surefoot.ways.export import export_weights

    if weights:
        if recipe or trust_run or network or format or quantize:
            raise typer.BadParameter(
                "--weights executes no code: leave out the recipe, --network, --format, --quantize and --trust-run"
            )
        show(export_weights(str(run), to=str(to) if to else None), weights_text, json=json)
        return
    made = way(
        str(run),
        recipe,
        to=str(to) if to else None,
        network=network,
        formats=format or (),
        quantize=quantize or (),
        trust_run=trust_run,
    )
    show(made, export_text, json=json)
    if any(each.reason for each in made.formats) or any(each.reason for each in made.quantised_gguf):
        raise typer.Exit(1)
