"""The command `surefoot probe`: experiments on an unchanged script, which say what its training responds to."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surefoot.cli.shared import JsonOption, show
from surefoot.errors import RunError
from surefoot.recipe.kind import kind_of
from surefoot.reports.console import PlainConsole

if TYPE_CHECKING:
    from surefoot.records.probed import Probed


def probe(
    script: Annotated[
        Path, typer.Argument(metavar="SCRIPT", help="your training script or notebook; it stays unchanged")
    ],
    args: Annotated[list[str] | None, typer.Argument(metavar="-- ARGS", help="arguments of the script")] = None,
    updates: Annotated[
        int, typer.Option(min=30, help="the most updates of a run before its last evaluation; fewer cost less")
    ] = 200,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="runs at once, each on one thread; default half the cores")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Runs your script several times, each time with one thing changed, and prints what its training responds to.

    It asks what no reading of the code can tell: does the metric depend on the targets, is anything learned from which
    target belongs to which input, does every part of the input reach an output, do samples mix. A finding says what was
    measured.

    What the script prints is kept back, and what it saves, tracks or uploads goes to a temporary folder. It prints its
    cost first: usually that of a few trainings of --updates updates.

    Examples:

    `surefoot probe train.py`

    `surefoot probe train.py --updates 150 --jobs 4 -- --lr 1e-3`
    """
    kind = kind_of(str(script))
    if kind == "recipe":
        raise RunError(f"{script} is a recipe, and `probe` runs scripts: use `surefoot check {script} --probe`")
    if kind == "neither" and script.is_file():
        raise RunError(f"{script} does nothing when it is run; `probe` needs a script that trains")
    from surefoot.debug.probe.probe import probe as experiments

    show_probed(partial(experiments, str(script), args or (), updates=updates, jobs=jobs or at_once()), json=json)


def at_once() -> int:
    """How many runs share the machine, unless the user says so: half as many as it has cores."""
    return max(1, (os.cpu_count() or 2) // 2)


def show_probed(experiments: Callable[..., Probed], *, json: bool) -> None:
    """Does the experiments, tells their cost before and shows what they came to."""
    from surefoot.reports.probed import probed_text

    console = PlainConsole(stderr=True)
    record = experiments(tell=lambda text: console.print(text, style="dim", highlight=False))
    show(record, probed_text, json=json)
