"""The command `surefoot sweep`: trials of a recipe with different knobs, each planned before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.plan import budget_of
from surefoot.cli.shared import ConfigOption, JsonOption, RecipeArgument, devices, show, with_file
from surefoot.cli.train import RESUMABLE
from surefoot.torch_inside.version import require_torch


def sweep(
    recipe: RecipeArgument,
    knobs: Annotated[
        list[str],
        typer.Argument(metavar="KNOB=VALUES", help="knobs; LOW..HIGH and A,B,C vary: lr=1e-5..1e-3 rank=8,16,64"),
    ],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="folder of the sweep, new or to resume")],
    config: ConfigOption = None,
    trials: Annotated[int, typer.Option(min=1, help="how many settings to try")] = 20,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="GPUS", callback=devices, help="plan trials for these; default: this machine"),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option("--budget", metavar="LIMIT=AMOUNT", help="of each trial: memory=76GiB, days=14, dollars=2e6"),
    ] = None,
    best: Annotated[
        str, typer.Option(metavar="METRIC", help="what to compare; with - before it, lower is better")
    ] = "-loss",
    early_stopping: Annotated[
        bool, typer.Option(help="end a trial that is worse than the median of the others after as many steps")
    ] = True,
    seed: Annotated[int, typer.Option(min=0, help="of the choice of settings")] = 0,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="also write the table as a page")] = None,
    json: JsonOption = False,
) -> None:
    """Tries settings that Optuna chooses. A setting whose plan does not fit, or exceeds the budget, never runs.

    If it is killed, run the same command again: it resumes, and makes the trials that it would have made.
    Each trial that ran is a run directory in DIR.

    Example: `surefoot sweep gpt lr=1e-4..1e-2 width=64,128,4096 max_steps=50 --to sweeps/first --budget memory=2GiB`
    """
    require_torch()
    from surefoot.integrations.sweep.sweep import sweep as way
    from surefoot.reports.sweep import sweep_text, trial_line
    from surefoot.reports.sweep_page import write_sweep_page

    metric = best.removeprefix("-")
    found = way(
        recipe,
        with_file(recipe, knobs, config),
        to=str(to),
        trials=trials,
        on=on,
        budget=budget_of(budget or []),
        best=best,
        early_stopping=early_stopping,
        seed=seed,
        tell=lambda trial: typer.echo(trial_line(trial, metric), err=True),
    )
    if html is not None:
        write_sweep_page(found, html)
    show(found, sweep_text, json=json)
    if len(found.trials) < trials:
        raise typer.Exit(RESUMABLE)
    if found.winner is None:
        raise typer.Exit(1)
