"""surefoot plan | check | train | profile | export | watch | report: the only file that prints."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from surefoot.errors import RecipeError, SurefootError
from surefoot.records.codec import to_json

if TYPE_CHECKING:
    from surefoot.recipe import Recipe

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
    reuse: Annotated[
        bool, typer.Option(help="of many alike blocks run a few for all, where that is proved to give the same")
    ] = True,
    json: JsonOption = False,
) -> None:
    """Memory and FLOPs of a step, by account and module, without running it.

    The step runs on tensors that have a shape and no memory, so a model far larger than this machine can be
    planned on it. Example: `surefoot plan gpt layers=24 width=1024 heads=16`
    """
    if hf is not None:
        loaded = _load("hf", [f"config={hf}", *([recipe] if recipe else []), *(knobs or ())])
    elif recipe is None:
        raise RecipeError("plan what? name a recipe, or a folder with --hf")
    else:
        loaded = _load(recipe, knobs)
    from surefoot.reports.text import plan_text
    from surefoot.ways.plan import plan as way

    record = way(loaded, reuse=reuse)
    _show(record, plan_text, json=json)


@app.command()
def check(
    recipe: RecipeArgument, knobs: KnobsArgument = None, allow: AllowOption = None, json: JsonOption = False
) -> None:
    """A few tiny real steps, watched for bugs that raise no exception.

    Exits with 1 if anything found is an error. Example: `surefoot check my_recipe.py`
    """
    loaded = _load(recipe, knobs)
    from surefoot.reports.text import findings_text
    from surefoot.ways.check import check as way

    record = way(loaded, allow=allow or ())
    _show(record, findings_text, json=json)
    raise typer.Exit(1 if record.errors else 0)


@app.command()
def train(
    recipe: RecipeArgument,
    knobs: KnobsArgument = None,
    run: Annotated[Path | None, typer.Option("--run", metavar="DIR", help="where to keep the run")] = None,
    json: JsonOption = False,
) -> None:
    """Takes the steps, in this process, and keeps a run directory: recipe, settings, log, weights.

    Example: `surefoot train gpt max_steps=50`
    """
    loaded = _load(recipe, knobs)
    from surefoot.reports.live import LiveView
    from surefoot.reports.text import run_text
    from surefoot.ways.train import train as way

    with LiveView(loaded.steps() or 0, console=Console(stderr=json)) as view:
        record = way(loaded, path=str(run) if run else None, tell=view)
    _show(record, run_text, json=json)


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
    json: JsonOption = False,
) -> None:
    """Runs a script of your own, unchanged, and books and checks its training loop.

    Exits with 1 if anything found is an error. Example: `surefoot watch train.py --steps 20 -- --lr 1e-3`
    """
    from surefoot.reports.text import watched_text
    from surefoot.watch import watch_script

    with redirect_stdout(sys.stderr if json else sys.stdout):
        record = watch_script(str(script), args or (), steps=steps, allow=allow or ())
    _show(record, watched_text, json=json)
    raise typer.Exit(1 if record.findings.errors else 0)


@app.command()
def report(run: RunArgument, json: JsonOption = False) -> None:
    """What a run has done so far: its settings, its loss, its speed."""
    from surefoot.records.run import read_run
    from surefoot.reports.text import run_text

    record = read_run(run)
    _show({"run": record, "log": record.rows()}, lambda _: run_text(record), json=json)


def _load(target: str, knobs: list[str] | None) -> Recipe:
    from surefoot.load import load_recipe

    return load_recipe(target, knobs or ())


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
