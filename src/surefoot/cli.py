"""surefoot plan | check | train | profile | export | watch | report | data: with cli_data.py, all that prints."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from rich.console import Console

from surefoot.cli_data import app as data_app
from surefoot.errors import RecipeError, RunError, SurefootError
from surefoot.records.codec import to_json

if TYPE_CHECKING:
    from surefoot.recipe import Recipe
    from surefoot.records.finding import Findings

RESUMABLE = 75
"""The exit code of a run that was asked to stop, saved, and can go on: EX_TEMPFAIL of sysexits.h."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=(
        "RECIPE is a built-in name (regression, cruncher, sentiment, fashion, gpt), file.py, file.py:function or "
        "package.module:function. Its parameters are the knobs: `surefoot plan gpt layers=24 width=1024`"
    ),
)

app.add_typer(data_app, name="data")

RecipeArgument = Annotated[
    str,
    typer.Argument(metavar="RECIPE", help="a built-in name, file.py, file.py:function or module:function"),
]
KnobsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="KNOB=VALUE", help="knobs of the recipe, such as layers=24 precision=bf16-mixed"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="print the record as JSON instead of text")]
AllowOption = Annotated[
    list[str] | None, typer.Option("--allow", metavar="CHECK", help="silence one check; may be repeated")
]
SarifOption = Annotated[
    Path | None, typer.Option("--sarif", metavar="FILE", help="keep the findings for editors and CI, as SARIF 2.1.0")
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
def plan(
    recipe: Annotated[
        str | None,
        typer.Argument(metavar="RECIPE", help="a built-in name, file.py, file.py:function or module:function"),
    ] = None,
    knobs: KnobsArgument = None,
    hf: Annotated[
        Path | None, typer.Option("--hf", metavar="DIR", help="plan the Hugging Face config.json in this folder")
    ] = None,
    on: Annotated[
        str | None, typer.Option("--on", metavar="GPU", help="plan for this GPU, such as h100-sxm; no GPU is needed")
    ] = None,
    reuse: Annotated[
        bool, typer.Option(help="of many alike blocks run a few for all, where that is proved to give the same")
    ] = True,
    json: JsonOption = False,
) -> None:
    """Memory and FLOPs of a step, by account and module, without running it.

    The step runs on tensors that have a shape and no memory, so a model far larger than this machine can be
    planned on it. Example: `surefoot plan gpt layers=24 width=1024 heads=16 --on h100-sxm`
    """
    if hf is not None:
        loaded = _load("hf", [f"config={hf}", *([recipe] if recipe else []), *(knobs or ())])
    elif recipe is None:
        raise RecipeError("plan what? name a recipe, or a folder with --hf")
    else:
        loaded = _load(recipe, knobs)
    from surefoot.reports.text import plan_text
    from surefoot.ways.plan import plan as way

    record = way(loaded, on=on, reuse=reuse)
    _show(record, plan_text, json=json)


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
        float | None, typer.Option(help="with --overfit: what counts as learned; default: 1% of the first loss")
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
    _goes_with("--overfit", overfit, {"--target-loss": target_loss})
    _goes_with("--lr-range", lr_range, {"--plot": plot})
    _goes_with("one of --overfit and --lr-range", overfit != lr_range, {"--steps": steps})
    if overfit and lr_range:
        raise typer.BadParameter("--overfit or --lr-range: one at a time")
    loaded = _load(recipe, knobs)
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
    _show(record, findings_text, json=json)
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
    _show(record, overfit_text, json=json)
    raise typer.Exit(1 if record.findings.errors else 0)


def _check_lr_range(loaded: Recipe, steps: int | None, plot: Path | None, *, json: bool) -> None:
    from surefoot.reports.chart import figure_for, save_chart
    from surefoot.reports.lr_range import lr_range_text
    from surefoot.ways.lr_range import STEPS
    from surefoot.ways.lr_range import lr_range as way

    figure = None if plot is None else figure_for(plot)
    record = way(loaded, steps=steps or STEPS)
    _show(record, lr_range_text, json=json)
    if plot is not None:
        save_chart(record, figure, plot)


@app.command()
def train(
    recipe: RecipeArgument,
    knobs: KnobsArgument = None,
    run: Annotated[
        Path | None, typer.Option("--run", metavar="DIR", help="where to keep the run, or the run to go on with")
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
    log: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="TOOL", help="tell tensorboard, wandb or mlflow too; may be repeated"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Takes the steps, in this process, and keeps a run directory: recipe, settings, log, checkpoints, weights.

    Killed at any moment, the same command with the same --run goes on from the last checkpoint, to the same bits.
    SIGTERM or Ctrl-C ends the run after its step, saved, and exits with 75.
    Example: `surefoot train gpt max_steps=50 --run runs/first`
    """
    loaded = _load(recipe, knobs)
    if audit:
        _audit(loaded, run, json=json)
    from surefoot.reports.live import LiveView
    from surefoot.reports.text import run_text
    from surefoot.ways.train import train as way
    from surefoot.writers import open_writers

    with LiveView(loaded.steps() or 0, console=Console(stderr=json)) as view, open_writers(log or ()) as writers:

        def tell(*told: Any) -> None:
            view(*told)
            writers(*told)

        path = str(run) if run else None
        record = way(loaded, path=path, resume=resume, accept_change=accept_change, tell=tell)
    _show(record, run_text, json=json)
    if record.status == "interrupted":
        raise typer.Exit(RESUMABLE)


@app.command()
def profile(
    recipe: RecipeArgument,
    knobs: KnobsArgument = None,
    steps: Annotated[int, typer.Option(min=1, help="how many steps to time")] = 5,
    json: JsonOption = False,
) -> None:
    """A few real steps under all meters, and the ledger: predicted beside measured.

    Example: `surefoot profile gpt precision=bf16-mixed`
    """
    loaded = _load(recipe, knobs)
    from surefoot.records.ledger import Ledger
    from surefoot.reports.text import profile_text
    from surefoot.ways.plan import plan as plan_way
    from surefoot.ways.profile import profile as way

    predicted, record = plan_way(loaded), way(loaded, timed_steps=steps)
    ledger = Ledger.of(predicted.tally, record.tally)
    _show(
        {"plan": predicted, "profile": record, "ledger": ledger},
        lambda _: profile_text(record, ledger),
        json=json,
    )


@app.command()
def export(
    run: RunArgument,
    to: Annotated[Path | None, typer.Option("--to", metavar="DIR", help="default: RUN/export")] = None,
    json: JsonOption = False,
) -> None:
    """The weights (safetensors) and the program (torch.export) of a finished run, compared with the model.

    Fails if either file, read back from disk, computes other numbers than the trained model.
    """
    from surefoot.reports.text import export_text
    from surefoot.ways.export import export as way

    _show(way(str(run), to=str(to) if to else None), export_text, json=json)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": False})
def watch(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="a training script, left as it is")],
    args: Annotated[list[str] | None, typer.Argument(metavar="-- ARGS", help="arguments of the script")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="stop the script after this many updates")] = None,
    allow: AllowOption = None,
    sarif: SarifOption = None,
    json: JsonOption = False,
) -> None:
    """Runs a script of your own, unchanged, and books and checks its training loop.

    Exits with 1 if anything found is an error. Example: `surefoot watch train.py --steps 20 -- --lr 1e-3`
    """
    from surefoot.reports.text import watched_text
    from surefoot.watch import watch_script

    with redirect_stdout(sys.stderr if json else sys.stdout):
        record = watch_script(str(script), args or (), steps=steps, allow=allow or ())
    _keep_sarif(record.findings, sarif)
    _show(record, watched_text, json=json)
    raise typer.Exit(1 if record.findings.errors else 0)


@app.command()
def report(run: RunArgument, json: JsonOption = False) -> None:
    """What a run has done so far: its settings, its loss, its speed."""
    from surefoot.records.run import read_run
    from surefoot.reports.text import run_text

    record = read_run(run)
    everything = {"run": record, "log": record.rows(), "events": record.happened()}
    _show(everything, lambda _: run_text(record), json=json)


def _audit(recipe: Recipe, run: Path | None, *, json: bool) -> NoReturn:
    if run is None:
        raise RunError("audit what? name a run directory with --run")
    from surefoot.reports.text import audit_text
    from surefoot.ways.audit import audit

    record = audit(recipe, str(run))
    _show(record, audit_text, json=json)
    raise typer.Exit(1 if record.differing else 0)


def _load(target: str, knobs: list[str] | None) -> Recipe:
    from surefoot.load import load_recipe

    return load_recipe(target, knobs or ())


def _goes_with(flag: str, given: bool, options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is not None and not given:
            raise typer.BadParameter(f"{name} goes with {flag}")


def _show(record: Any, text: Any, *, json: bool) -> None:
    if json:
        print(to_json(record))
    else:
        Console().print(text(record))


def main() -> None:
    """The command `surefoot`. What surefoot refuses on purpose is one message, not a traceback."""
    try:
        app()
    except SurefootError as error:
        Console(stderr=True).print(f"[bold red]{type(error).__name__}[/]: {_escape(str(error))}", highlight=False)
        raise SystemExit(2) from None


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
