"""surefoot check | train | profile | export | watch | report; with cli_plan, cli_data, cli_hardware all that prints."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from surefoot.cli.data import app as data_app
from surefoot.cli.hardware import app as hardware_app
from surefoot.cli.plan import plan as plan_command
from surefoot.cli.shared import (
    RECIPE,
    JsonOption,
    KnobsArgument,
    agreeing,
    goes_with,
    load,
    load_other,
    rank,
    rank_count,
    show,
    within,
)
from surefoot.errors import RunError, SurefootError
from surefoot.records.codec import to_json
from surefoot.reports.console import PlainConsole

if TYPE_CHECKING:
    from surefoot.recipe.recipe import Recipe
    from surefoot.records.finding import Findings
    from surefoot.records.plan import Plan

RESUMABLE = 75
"""The exit code of a run that was asked to stop, saved, and can go on: EX_TEMPFAIL of sysexits.h."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=(
        "RECIPE is a built-in name (regression, cruncher, sentiment, fashion, gpt, llama), file.py, file.py:function "
        "or package.module:function. Its parameters are the knobs: `surefoot plan gpt layers=24 width=1024`"
    ),
)

app.add_typer(data_app, name="data")
app.add_typer(hardware_app, name="hardware")
app.command()(plan_command)

RecipeArgument = Annotated[str, RECIPE]
AllowOption = Annotated[
    list[str] | None, typer.Option("--allow", metavar="CHECK", help="silence one check; may be repeated")
]
SarifOption = Annotated[
    Path | None, typer.Option("--sarif", metavar="FILE", help="keep the findings for editors and CI, as SARIF 2.1.0")
]
TrustOption = Annotated[
    bool, typer.Option("--trust-run", help="execute the recipe that the run itself holds or names: code by its maker")
]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="a run directory, as `surefoot train` makes it")]


def _version(wanted: bool) -> None:
    if wanted:
        from surefoot import __version__

        print(__version__)
        raise typer.Exit()


@app.callback()
def surefoot(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="say which")] = False,
) -> None:
    """Know every training step before you take it.

    A training step is written once, in plain PyTorch, and run five ways: plan, check, train, profile, export.
    """


@app.command()
def check(
    recipe: RecipeArgument,
    knobs: KnobsArgument = None,
    allow: AllowOption = None,
    overfit: Annotated[
        bool, typer.Option("--overfit", help="train on one batch alone: its loss must come near zero")
    ] = False,
    lr_range: Annotated[
        bool, typer.Option("--lr-range", help="let the learning rate rise from 1e-7 to 10 until the loss diverges")
    ] = False,
    steps: Annotated[
        int | None, typer.Option(min=1, help="with --overfit: at most so many at each rate; with --lr-range: in all")
    ] = None,
    target_loss: Annotated[
        float | None,
        typer.Option(
            callback=within(-1e30), help="with --overfit: what counts as learned; default: 1% of the first loss"
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="with --lr-range: the curve as .svg, .png or .pdf")
    ] = None,
    sarif: SarifOption = None,
    json: JsonOption = False,
) -> None:
    """A few tiny real steps, watched for bugs that raise no exception.

    Or, with `--overfit`, one batch learned by heart; or, with `--lr-range`, a test of learning rates. Exits with 1 if
    anything found is an error. Examples: `surefoot check my_recipe.py`, `surefoot check gpt --overfit`
    """
    goes_with("--overfit", overfit, {"--target-loss": target_loss})
    goes_with("--lr-range", lr_range, {"--plot": plot})
    goes_with("one of --overfit and --lr-range", overfit != lr_range, {"--steps": steps})
    if overfit and lr_range:
        raise typer.BadParameter("--overfit or --lr-range: one at a time")
    loaded = load(recipe, knobs)
    if lr_range:
        _check_lr_range(loaded, steps, plot, json=json)
    elif overfit:
        _check_overfit(loaded, steps, target_loss, allow, json=json)
    else:
        _check_steps(loaded, allow, sarif, json=json)


def _check_steps(loaded: Recipe, allow: list[str] | None, sarif: Path | None, *, json: bool) -> None:
    from surefoot.reports.text import findings_text
    from surefoot.ways.check import check as way

    record = way(loaded, allow=allow or ())
    _keep_sarif(record, sarif)
    show(record, findings_text, json=json)
    raise typer.Exit(1 if record.errors else 0)


def _keep_sarif(findings: Findings, file: Path | None) -> None:
    from surefoot.reports.sarif import sarif_text

    if file is not None:
        file.write_text(sarif_text(findings) + "\n", encoding="utf-8")


def _check_overfit(
    loaded: Recipe, steps: int | None, target_loss: float | None, allow: list[str] | None, *, json: bool
) -> None:
    from surefoot.reports.overfit import overfit_text
    from surefoot.ways.overfit import MAX_STEPS
    from surefoot.ways.overfit import overfit as way

    record = way(loaded, max_steps=steps or MAX_STEPS, target_loss=target_loss, allow=allow or ())
    show(record, overfit_text, json=json)
    raise typer.Exit(1 if record.findings.errors else 0)


def _check_lr_range(loaded: Recipe, steps: int | None, plot: Path | None, *, json: bool) -> None:
    from surefoot.reports.chart import figure_for, save_chart
    from surefoot.reports.lr_range import lr_range_text
    from surefoot.ways.lr_range import STEPS
    from surefoot.ways.lr_range import lr_range as way

    figure = None if plot is None else figure_for(plot)
    record = way(loaded, steps=steps or STEPS)
    show(record, lr_range_text, json=json)
    if plot is not None:
        save_chart(record, figure, plot)


@app.command()
def train(
    recipe: RecipeArgument,
    knobs: KnobsArgument = None,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            "--dir",
            metavar="DIR",
            help="where to keep the run, or the run to go on with; torchrun needs --dir",
        ),
    ] = None,
    resume: Annotated[
        Literal["auto", "never"], typer.Option(help="whether to go on with an unfinished run in that directory")
    ] = "auto",
    accept_change: Annotated[
        bool, typer.Option("--accept-change", help="go on although the recipe, its code or its data has changed")
    ] = False,
    audit: Annotated[
        bool, typer.Option("--audit", help="take the steps between the last two checkpoints again, and compare")
    ] = False,
    plan: Annotated[bool, typer.Option(help="plan the step first, so that the run has a ledger")] = True,
    measure: Annotated[
        bool, typer.Option("--measure", help="plan the seconds of a step too: each distinct operator is timed once")
    ] = False,
    log: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="TOOL", help="tell tensorboard, wandb or mlflow too; may be repeated"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Takes the steps and keeps a run directory: recipe, settings, log, checkpoints, weights.

    In this process, or on as many ranks as torchrun starts: `torchrun --nproc-per-node 2 -m surefoot train gpt`.
    Killed at any moment, the same command with the same --run goes on from the last checkpoint, to the same bits.
    SIGTERM or Ctrl-C ends the run after its step, saved, and exits with 75.
    Example: `surefoot train gpt max_steps=50 --run runs/first`
    """
    loaded = load(recipe, knobs)
    if audit:
        _audit(loaded, run, json=json)
    from surefoot.reports.live import LiveView
    from surefoot.reports.text import run_text
    from surefoot.ways.train import train as way
    from surefoot.writers import open_writers

    planned = _planned(loaded, run, anew=accept_change, measure=measure) if plan and rank() == 0 else None
    console = PlainConsole(stderr=json, quiet=rank() > 0)
    with LiveView(loaded.steps() or 0, console=console) as view, open_writers(_heard(log)) as writers:

        def tell(*told: Any) -> None:
            view(*told)
            writers(*told)

        path = str(run) if run else None
        record = way(loaded, path=path, resume=resume, accept_change=accept_change, plan=planned, tell=tell)
    show(record, run_text, json=json)
    if record.status == "interrupted":
        raise typer.Exit(RESUMABLE)


def _planned(recipe: Recipe, run: Path | None, *, anew: bool, measure: bool) -> Plan | None:
    """The plan of one of torchrun's ranks on the devices that are here, or none and why: a run does not depend on it.

    A run that goes on as it was, after a crash for one, keeps the plan it has.
    """
    from surefoot.records.plan import read_plan
    from surefoot.ways.plan import plan as way
    from surefoot.world.this_machine import present

    ranks = rank_count()
    try:
        kept = None if run is None or anew else read_plan(run)
        if kept is not None and (kept.ranks, kept.knobs) == (ranks, dict(recipe.knobs)):
            return kept
        return way(recipe, on=None if measure else present(ranks), measure=measure)
    except Exception as error:
        PlainConsole(stderr=True).print(f"no plan, so no ledger: {error}", style="yellow", highlight=False)
        return None


@app.command()
def profile(
    recipe: RecipeArgument,
    knobs: KnobsArgument = None,
    steps: Annotated[int, typer.Option(min=1, help="how many steps to time; with --against, rounds (at least 15)")] = 5,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="RUN|KNOBS", help="time it in turns with a run's recipe, or other knobs"),
    ] = None,
    trust_run: TrustOption = False,
    run: Annotated[
        Path | None, typer.Option("--run", "--dir", metavar="DIR", help="keep the profile in this run directory")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="plan the seconds of a step too: each distinct operator is timed once")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="keep the trace, for Perfetto or chrome://tracing")
    ] = None,
    json: JsonOption = False,
) -> None:
    """A few real steps under all meters: where time and memory went, and the ledger against the plan.

    With `--against`, both sides are timed in turns, and the difference is given with its confidence interval. Examples:
    `surefoot profile gpt precision=bf16-mixed`, `surefoot profile gpt compile=whole --against compile=off`
    """
    goes_with("--against", against is not None, {"--trust-run": trust_run or None})
    loaded = load(recipe, knobs)
    if against is not None:
        _compare(loaded, recipe, knobs, against, steps, trust_run=trust_run, json=json)
        return
    from surefoot.costs.ledgers import ledger_of
    from surefoot.records.plan import read_plan, write_plan
    from surefoot.records.profile import write_profile
    from surefoot.reports.profile import profile_text
    from surefoot.ways.plan import plan as plan_way
    from surefoot.ways.profile import profile as way
    from surefoot.world.this_machine import present

    predicted = plan_way(loaded, on=None if measure else present(1), measure=measure)
    record = way(loaded, timed_steps=steps, trace=str(trace) if trace else None)
    if run is not None:
        if read_plan(run) is None:
            write_plan(run, predicted)
        write_profile(run, record)
    ledger = ledger_of(predicted, record)
    show(
        {"plan": predicted, "profile": record, "ledger": ledger},
        lambda _: profile_text(record, ledger),
        json=json,
    )


def _compare(
    loaded: Recipe,
    target: str,
    knobs: list[str] | None,
    against: str,
    rounds: int,
    *,
    trust_run: bool,
    json: bool,
) -> None:
    """The recipe against a run's, or against itself with other knobs."""
    from surefoot.reports.profile import comparison_text
    from surefoot.ways.profile import compare as way

    if Path(against).is_dir():
        from surefoot.recipe.load import builtin_recipes
        from surefoot.records.profile import read_profile
        from surefoot.records.run import read_run
        from surefoot.training.trust import recipe_of

        kept = read_profile(Path(against)) or read_run(against)
        own = None if kept.target in builtin_recipes() else target
        other = recipe_of(kept, against, own, trust_run=trust_run)
    else:
        other = load_other(target, knobs, against)
    show(way(other, loaded, rounds=max(rounds, 15)), comparison_text, json=json)


@app.command()
def export(
    run: RunArgument,
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
    from surefoot.reports.text import export_text, weights_text
    from surefoot.ways.export import export as way
    from surefoot.ways.export import export_weights

    if weights:
        if recipe or trust_run:
            raise typer.BadParameter("--weights executes nothing: it needs neither a recipe nor --trust-run")
        show(export_weights(str(run), to=str(to) if to else None), weights_text, json=json)
        return
    show(way(str(run), recipe, to=str(to) if to else None, trust_run=trust_run), export_text, json=json)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": False})
def watch(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="a training script, left as it is")],
    args: Annotated[list[str] | None, typer.Argument(metavar="-- ARGS", help="arguments of the script")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="stop the script after this many updates")] = None,
    check_all: Annotated[
        bool,
        typer.Option("--check-all", help="check every step, not only the first hundred and the first evaluation"),
    ] = False,
    run: Annotated[
        Path | None,
        typer.Option("--run", "--dir", metavar="DIR", help="keep a run directory, for a report; torchrun needs --dir"),
    ] = None,
    allow: AllowOption = None,
    sarif: SarifOption = None,
    json: JsonOption = False,
) -> None:
    """Runs a script of your own, unchanged, and books and checks its training loop.

    The first three updates are booked, operator by operator; the rest only by the clock. Exits with 1 if anything
    found is an error. Example: `surefoot watch train.py --steps 20 -- --lr 1e-3`
    """
    from surefoot.reports.text import watched_text
    from surefoot.watch import watch_script

    with redirect_stdout(sys.stderr if json else sys.stdout):
        record = watch_script(str(script), args or (), steps=steps, check_all=check_all, allow=allow or (), keep=run)
    _keep_sarif(record.findings, sarif)
    show(record, watched_text, json=json)
    raise typer.Exit(1 if record.findings.errors else 0)


@app.command()
def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="run directories, of train, profile --run or watch --run")
    ],
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="write one self-contained page; needs no network")
    ] = None,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="DIR", help="write every figure as a picture; needs Chromium")
    ] = None,
    json: JsonOption = False,
) -> None:
    """What runs have done: did it go as planned, what to change first, and every figure behind it.

    Several runs are compared in one page. Example: `surefoot report runs/first runs/second --html report.html`
    """
    from surefoot.records.run import read_run
    from surefoot.reports.figures import titled_figures
    from surefoot.reports.gather import report_of
    from surefoot.reports.text import report_text

    with agreeing(*runs):
        record = report_of(*runs)
        read = [read_run(run) for run in runs if (run / "run.json").exists()]
        if html is not None:
            from surefoot.reports.page import write_page

            write_page(record, html)
        if png is not None:
            from surefoot.reports.pictures import write_pictures

            write_pictures(record, png)
        if json:
            ledgers = [each.token_ledger.totals(each.parameters) if each.token_ledger else None for each in read]
            logs = [each.rows() for each in read]
            figures = titled_figures(record)
            print(to_json({"report": record, "figures": figures, "runs": read, "tokens": ledgers, "logs": logs}))
            return
        PlainConsole().print(report_text(record, read))
        for written in filter(None, (html, png)):
            PlainConsole().print(f"written: {written}", style="dim", highlight=False)


def _audit(recipe: Recipe, run: Path | None, *, json: bool) -> NoReturn:
    if run is None:
        raise RunError("audit what? name a run directory with --run")
    from surefoot.reports.text import audit_text
    from surefoot.ways.audit import audit

    record = audit(recipe, str(run))
    show(record, audit_text, json=json)
    raise typer.Exit(1 if record.differing else 0)


def _heard(log: list[str] | None) -> list[str]:
    return [] if log is None or rank() > 0 else log


def main() -> None:
    """The command `surefoot`. An error ends in one message or in the user's own lines; SUREFOOT_RAISE=1 raises it."""
    try:
        app()
    except Exception as error:
        if os.environ.get("SUREFOOT_RAISE") == "1" and not isinstance(error, SurefootError):
            raise
        from surefoot.cli.errors import tell

        raise SystemExit(tell(error)) from None
