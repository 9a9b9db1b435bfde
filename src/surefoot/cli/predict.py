"""The command `surefoot predict`: what a trained classifier or regressor says of new inputs, as JSON lines."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from surefoot.cli.shared import KnobsArgument, RecipeOfRunArgument, TrustOption, goes_with
from surefoot.records.codec import to_json
from surefoot.reports.console import PlainConsole
from surefoot.torch_inside.version import require_torch
from surefoot.units import counted


def predict(
    source: Annotated[
        Path, typer.Argument(metavar="RUN|EXPORT", help="a finished run, the folder of an export, or an exported file")
    ],
    inputs: Annotated[Path, typer.Argument(metavar="INPUT", help="a .jsonl file, or a folder of files")],
    recipe: RecipeOfRunArgument = None,
    knobs: KnobsArgument = None,
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="write there instead of printing")] = None,
    micro_batch_size: Annotated[
        int | None, typer.Option("--micro-batch-size", min=1, help="inputs at a time; default: as in training")
    ] = None,
    trust_run: TrustOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="with --to: print how many and how fast, as JSON")] = False,
) -> None:
    """Prints one JSON line for each input: its line number or file name, and what the model says of it.

    The recipe says how: `read(item)` makes a sample of an input, `predict(model, batch)` answers.

    Example: `surefoot predict runs/first reviews.jsonl`
    """
    require_torch()
    goes_with("--to", to is not None, {"--json": as_json or None})
    from surefoot.exports.predict import predict as way

    with ExitStack() as open_things:
        file = open_things.enter_context(open(to, "w", encoding="utf-8")) if to else None

        def tell(answer: dict[str, Any]) -> None:
            print(json.dumps(answer), file=file)

        words, size = knobs or (), micro_batch_size
        made = way(str(source), str(inputs), recipe, knobs=words, micro_batch_size=size, trust_run=trust_run, tell=tell)
    if as_json:
        print(to_json(made))
        return
    rate = made.items / made.seconds
    said = f"{counted(made.items, 'input')}, {rate:,.0f} inputs/s"
    PlainConsole(stderr=True).print(said, style="dim", highlight=False)
