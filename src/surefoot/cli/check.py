"""The command `surefoot check`: a few tiny steps, an overfit of one batch, or a learning-rate range test."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surefoot.cli.shared import (
    AllowOption,
    ConfigOption,
    JsonOption,
    KnobsArgument,
    RecipeArgument,
    SarifOption,
    goes_with,
    keep_sarif,
    load,
    show,
    with_file,
    within,
)

if TYPE_CHECKING:
    from surefoot.recipe.recipe import Recipe


def check(
    recipe: RecipeArgument,
    knobs: KnobsArgument = None,
    config: ConfigOption = None,
    allow: AllowOption = None,
    overfit: Annotated[
        bool, typer.Option("--overfit", help="train on one batch only: its loss must get near zero")
    ] = False,
    lr_range: Annotated[
        bool, typer.Option("--lr-range", help="raise the learning rate from 1e-7 to 10 until the loss diverges")
    ] = False,
    probe: Annotated[
        bool, typer.Option("--probe", help="train several times with one thing changed, to see what it responds to")
    ] = False,
    steps: Annotated[
        int | None, typer.Option(min=1, help="with --overfit: most steps at each rate; with --lr-range: steps in total")
    ] = None,
    target_loss: Annotated[
        float | None,
        typer.Option(
            callback=within(-1e30),
            help="with --overfit: the loss that counts as learned; default: 1% of the first loss",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="with --lr-range: save the curve as .svg, .png or .pdf"),
    ] = None,
    sarif: SarifOption = None,
    json: JsonOption = False,
) -> None:
    """Runs a few tiny real steps and finds bugs that raise no exception.

    With `--overfit`, the model must learn one batch by heart. With `--lr-range`, it tests learning rates. With
    `--probe`, it does the experiments of `surefoot probe`. Exits with 1 if any finding is an error.

    Examples:

    `surefoot check my_recipe.py`

    `surefoot check gpt --overfit`
    """
    goes_with("--overfit", overfit, {"--target-loss": target_loss})
    goes_with("--lr-range", lr_range, {"--plot": plot})
    goes_with("--overfit or --lr-range", overfit != lr_range, {"--steps": steps})
    if overfit + lr_range + probe > 1:
        raise typer.BadParameter("use one of --overfit, --lr-range and --probe")
    words = with_file(recipe, knobs, config)
    loaded = load(recipe, words)
    if probe:
        _probe(recipe, words, json=json)
    elif lr_range:
        _check_lr_range(loaded, steps, plot, json=json)
    elif overfit:
        _check_overfit(loaded, steps, target_loss, allow, json=json)
    else:
        _check_steps(loaded, allow, sarif, json=json)


def _check_steps(loaded: Recipe, allow: list[str] | None, sarif: Path | None, *, json: bool) -> None:
    from surefoot.recipe.kind import split_target
    from surefoot.reports.findings import findings_text
    from surefoot.ways.check import check as way

    record = way(loaded, allow=allow or ())
    place = split_target(loaded.target)[0]
    keep_sarif(record, sarif, of=place if place.endswith(".py") else "")
    show(record, findings_text, json=json)
    raise typer.Exit(1 if record.errors else 0)


def _probe(target: str, words: Sequence[str], *, json: bool) -> None:
    from surefoot.cli.probe import at_once, show_probed
    from surefoot.debug.probe.probe import probe_recipe

    show_probed(partial(probe_recipe, target, words, jobs=at_once()), json=json)


def _check_overfit(
    loaded: Recipe, steps: int | None, target_loss: float | None, allow: list[str] | None, *, json: bool
) -> None:
    from surefoot.reports.overfit import overfit_text
    from surefoot.training.overfit import MAX_STEPS
    from surefoot.training.overfit import overfit as way

    record = way(loaded, max_steps=steps or MAX_STEPS, target_loss=target_loss, allow=allow or ())
    show(record, overfit_text, json=json)
    raise typer.Exit(1 if record.findings.errors else 0)


def _check_lr_range(loaded: Recipe, steps: int | None, plot: Path | None, *, json: bool) -> None:
    from surefoot.reports.chart import figure_for, save_chart
    from surefoot.reports.lr_range import lr_range_text
    from surefoot.training.lr_range import STEPS
    from surefoot.training.lr_range import lr_range as way

    figure = None if plot is None else figure_for(plot)
    record = way(loaded, steps=steps or STEPS)
    show(record, lr_range_text, json=json)
    if plot is not None:
        save_chart(record, figure, plot)
