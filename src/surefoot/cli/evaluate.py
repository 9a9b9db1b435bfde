"""The command `surefoot evaluate`: loss and metrics of a trained model on held-out or test data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.shared import JsonOption, KnobsArgument, RecipeOfRunArgument, TrustOption, show
from surefoot.torch_inside.version import require_torch


def evaluate(
    source: Annotated[
        Path, typer.Argument(metavar="RUN|EXPORT", help="a finished run, the folder of an export, or an exported file")
    ],
    recipe: RecipeOfRunArgument = None,
    knobs: KnobsArgument = None,
    data: Annotated[
        str, typer.Option("--data", metavar="evaluation|test|train|NAME|FOLDER", help="what to score it on")
    ] = "evaluation",
    micro_batch_size: Annotated[
        int | None, typer.Option("--micro-batch-size", min=1, help="samples at a time; default: as in training")
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(
            "--tasks", metavar="FILE|FOLDER", help="in place of data: tasks of lm-evaluation-harness, in YAML"
        ),
    ] = None,
    trust_run: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Scores a trained model: loss, perplexity, bits per byte and the recipe's metrics, over each sample once.

    The result does not depend on the number of ranks, nor, but for rounding, on the micro-batch size.
    `--tasks` scores the model, or a Hugging Face folder, by lm-evaluation-harness and local files. A task that names
    Python code is refused; `--trust-run` lets it run.
    On several ranks: `torchrun --nproc-per-node 2 -m surefoot evaluate runs/first`

    Example: `surefoot evaluate runs/first --data test`
    """
    require_torch()
    from surefoot.exports.evaluate import evaluate as way
    from surefoot.reports.evaluation import evaluation_text

    made = way(
        str(source),
        recipe,
        knobs=knobs or (),
        data=data,
        micro_batch_size=micro_batch_size,
        tasks=tasks,
        trust_run=trust_run,
    )
    show(made, evaluation_text, json=json)
