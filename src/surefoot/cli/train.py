"""The command `surefoot train`: plan the step, train and show progress; with `--audit`, redo steps and compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from surefoot.cli.shared import (
    ConfigOption,
    JsonOption,
    KnobsArgument,
    MemoryLimitOption,
    RecipeArgument,
    keep_known,
    limit_bytes,
    load,
    rank,
    rank_count,
    show,
    with_file,
)
from surefoot.errors import RunError
from surefoot.reports.console import PlainConsole

if TYPE_CHECKING:
    from surefoot.recipe.recipe import Recipe
    from surefoot.records.plan import Plan

UNSAVED = 74
"""The exit code of a run whose last checkpoint could not be written: EX_IOERR of sysexits.h."""
RESUMABLE = 75
"""The exit code of a run that was asked to stop and saved a checkpoint to resume from: EX_TEMPFAIL of sysexits.h."""


def train(
    recipe: RecipeArgument,
    knobs: KnobsArgument = None,
    config: ConfigOption = None,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            "--dir",
            metavar="DIR",
            help="directory for a new run, or of the run to resume; under torchrun use --dir",
        ),
    ] = None,
    resume: Annotated[
        Literal["auto", "never"], typer.Option(help="whether to resume an unfinished run in that directory")
    ] = "auto",
    accept_change: Annotated[
        bool, typer.Option("--accept-change", help="resume although the recipe, its code or its data has changed")
    ] = False,
    audit: Annotated[
        bool, typer.Option("--audit", help="repeat the steps between the last two checkpoints and compare")
    ] = False,
    plan: Annotated[
        bool, typer.Option(help="plan the step first, so that the report can compare it with what was measured")
    ] = True,
    measure: Annotated[
        bool, typer.Option("--measure", help="also predict the seconds of a step: time each distinct operator once")
    ] = False,
    log: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="TOOL", help="also log to tensorboard, wandb or mlflow; may be repeated"),
    ] = None,
    memory_limit: MemoryLimitOption = None,
    json: JsonOption = False,
) -> None:
    """Trains and writes a run directory: recipe, settings, log, checkpoints, weights.

    If it is killed, run the same command with the same --run again: it resumes from the last checkpoint, bit for bit.
    On SIGTERM or Ctrl-C it finishes the step, saves a checkpoint and exits with 75.
    If the last checkpoint could not be written, it says so and exits with 74.
    On several ranks: `torchrun --nproc-per-node 2 -m surefoot train gpt`

    Examples:

    `surefoot train gpt max_steps=50 --run runs/first`

    `surefoot train finetune --config run.toml rank=32 --run runs/tuned`
    """
    limit = limit_bytes(memory_limit)
    loaded = load(recipe, _as_pinned(with_file(recipe, knobs, config), run))
    if audit:
        _audit(loaded, run, json=json)
    from surefoot.integrations.writers import open_writers
    from surefoot.reports.live import LiveView
    from surefoot.reports.run import run_text
    from surefoot.techniques.mesh import layout_of, with_global_batch
    from surefoot.ways.train import train as way

    if loaded.made_corpus and rank() == 0:
        _show_conversion(loaded.made_corpus, json=json)
    planned, unplanned = None, ""
    if plan and rank() == 0:
        planned, unplanned = _planned(loaded, run, anew=accept_change, measure=measure)
    _fetch(loaded)
    console = PlainConsole(stderr=json, quiet=rank() > 0)
    of_all_ranks = with_global_batch(loaded, layout_of(loaded, rank=rank(), ranks=rank_count()))
    shown = LiveView(of_all_ranks.steps() or 0, console=console, warning=unplanned)
    with shown as view, open_writers(_writers_to_open(log)) as writers:

        def tell(*told: Any) -> None:
            view(*told)
            writers(*told)

        path = str(run) if run else None
        try:
            record = way(
                loaded,
                path=path,
                resume=resume,
                accept_change=accept_change,
                plan=planned,
                tell=tell,
                memory_limit=limit,
            )
        except (RuntimeError, MemoryError) as error:
            _add_settings(error, loaded, planned)
            raise
    show(record, run_text, json=json)
    if record.unsaved:
        PlainConsole(stderr=True, quiet=rank() > 0).print(record.reason, style="bold red", highlight=False)
        raise typer.Exit(UNSAVED)
    if record.status == "interrupted":
        raise typer.Exit(RESUMABLE)


def _show_conversion(corpus: str, *, json: bool) -> None:
    """Prints what became of the user's files, and three samples with the tokens that bear loss marked."""
    from surefoot.finetuning.chat_corpus import preview, read_report
    from surefoot.reports.chat import chat_text, preview_text

    console = PlainConsole(stderr=json)
    console.print(chat_text(read_report(corpus)))
    console.print(preview_text(preview(corpus), most=600))
    console.print(f"to look at more: surefoot data preview {corpus}", style="dim", highlight=False)


def _as_pinned(words: list[str], run: Path | None) -> list[str]:
    """The knobs, with the commit of a model of the hub that the run began with: its branch may have moved since."""
    from surefoot.records.run import read_run

    if run is None or not (run / "run.json").exists():
        return words
    kept = {f"{name}={str(value).partition('@')[0]}": f"{name}={value}" for name, value in read_run(run).knobs.items()}
    return [kept.get(word, word) for word in words]


def _fetch(recipe: Recipe) -> None:
    """Downloads the weights of a model of the hub now, with a bar, and not below the live view."""
    from surefoot.finetuning.hub import WEIGHTS, folder_of

    if recipe.init_from is not None:
        folder_of(recipe.init_from, WEIGHTS)


def _planned(recipe: Recipe, run: Path | None, *, anew: bool, measure: bool) -> tuple[Plan | None, str]:
    """Plans the step of one rank on this machine's devices. If that fails, there is no plan but a warning.

    A run can do without a plan, so a failure does not stop it. The warning is for a run that trains: one that fails
    before its first step, often for the same reason, has something else to say. A run that resumes unchanged keeps the
    plan it has.
    """
    from surefoot.records.plan import read_plan
    from surefoot.ways.plan import plan as way
    from surefoot.world.this_machine import present

    ranks = rank_count()
    try:
        kept = None if run is None or anew else read_plan(run)
        if kept is not None and (kept.ranks, kept.knobs) == (ranks, dict(recipe.knobs)):
            return kept, ""
        return way(recipe, on=None if measure else present(ranks), measure=measure), ""
    except Exception as error:
        return None, f"planning failed, so the run has no prediction: {error}"


def _add_settings(error: Exception, recipe: Recipe, planned: Plan | None) -> None:
    """If memory ran out, adds the settings that would fit to what the error and the run directory say of it."""
    from surefoot.debug.memory.out_of_memory import attached

    known = attached(error)
    if known is None or rank() > 0:
        return
    from surefoot.planning.fit.after_out_of_memory import with_settings
    from surefoot.world.this_machine import present

    ranks = rank_count()
    on = present(ranks) if known.device != "cpu" or ranks > 1 else None
    if on is not None or known.limit_bytes is not None:
        PlainConsole(stderr=True).print("out of memory: searching for settings that fit ...", style="dim")
    keep_known(error, with_settings(known, recipe, planned=planned, on=on))


def _audit(recipe: Recipe, run: Path | None, *, json: bool) -> NoReturn:
    if run is None:
        raise RunError("--audit needs a run directory: name one with --run")
    from surefoot.debug.runs.audit import audit
    from surefoot.reports.audit import audit_text

    record = audit(recipe, str(run))
    show(record, audit_text, json=json)
    raise typer.Exit(1 if record.differing else 0)


def _writers_to_open(log: list[str] | None) -> list[str]:
    """The tools that `--log` names, on rank 0; none on other ranks."""
    return [] if log is None or rank() > 0 else log
