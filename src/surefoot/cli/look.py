"""The command `surefoot look`: one step of a recipe or a script, module by module."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.shared import JsonOption, load, show
from surefoot.plain_files import refusals_of
from surefoot.recipe.kind import kind_of
from surefoot.torch_inside.version import require_torch


def look(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE|SCRIPT", help="a recipe, or a script or notebook that trains")
    ],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="KNOB=VALUE", help="knobs of the recipe, or arguments of the script")
    ] = None,
    tensor: Annotated[
        str | None, typer.Option("--tensor", metavar="NAME", help="one tensor: its storage, who made it, who reads it")
    ] = None,
    depth: Annotated[int | None, typer.Option("--depth", min=0, help="modules down to this depth alone")] = None,
    graph: Annotated[
        Path | None, typer.Option("--graph", metavar="FILE.svg", help="draw the graph of autograd behind the loss")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="GPU", help="of a script: a GPU that is not here; shapes and no values"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Takes one step and shows every module: its output, parameters, activations, gradient and update.

    A script runs until its first update has ended. Tensors are named like parameters, or `layers.0(output)` and
    `(input)`.

    Examples:

    `surefoot look gpt layers=2`

    `surefoot look train.py --tensor head.weight -- --lr 1e-3`

    `surefoot look train.py --on rtx-4090`

    `surefoot look gpt layers=1 --graph loss.svg`
    """
    require_torch()
    from surefoot.debug.look.look import look as way
    from surefoot.debug.look.look import look_at_script
    from surefoot.reports.looked import looked_text, tensor_text

    with redirect_stdout(sys.stderr if json else sys.stdout):
        runs = kind_of(recipe) in ("script", "notebook")
        if on is not None and not runs:
            raise typer.BadParameter("--on is for a script; a recipe runs on the device that is here")
        seen = look_at_script(recipe, words or (), on=on) if runs else way(load(recipe, words))
    if graph is not None:
        from surefoot.reports.autograd_graph import graph_svg

        with refusals_of(graph):
            graph.write_text(graph_svg(seen), encoding="utf-8")
    show(seen, partial(looked_text, depth=depth) if tensor is None else partial(tensor_text, name=tensor), json=json)
