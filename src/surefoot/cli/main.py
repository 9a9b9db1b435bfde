"""The command line `surefoot`: the list of commands and the entry point. Each command has its own file."""

from __future__ import annotations

import inspect
import os
from typing import Annotated

import typer

from surefoot.cli.chat import chat
from surefoot.cli.check import check
from surefoot.cli.compare import compare
from surefoot.cli.data import app as data_app
from surefoot.cli.doctor import doctor
from surefoot.cli.evaluate import evaluate
from surefoot.cli.explain import explain
from surefoot.cli.export import export
from surefoot.cli.generate import generate
from surefoot.cli.groups import in_list
from surefoot.cli.hardware import app as hardware_app
from surefoot.cli.init import init
from surefoot.cli.knobs import RecipeCommand
from surefoot.cli.look import look
from surefoot.cli.mcp import mcp
from surefoot.cli.merge import merge
from surefoot.cli.mistakes import AllCommands, ScriptCommand
from surefoot.cli.plan import plan
from surefoot.cli.predict import predict
from surefoot.cli.probe import probe
from surefoot.cli.profile import profile
from surefoot.cli.replay import replay
from surefoot.cli.report import report
from surefoot.cli.stuck import stuck
from surefoot.cli.sweep import sweep
from surefoot.cli.train import train
from surefoot.cli.validate import validate
from surefoot.cli.watch import watch
from surefoot.errors import SurefootError
from surefoot.recipe.builtin import builtin_recipes

app = typer.Typer(
    cls=AllCommands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=(
        f"RECIPE is a built-in name ({', '.join(builtin_recipes())}), file.py, file.py:function or "
        "package.module:function. Its parameters are the knobs: `surefoot plan gpt layers=24 width=1024`; "
        "`surefoot plan gpt --help` lists them"
    ),
)

_OF_SCRIPTS = {"allow_extra_args": True, "ignore_unknown_options": False}
for of_recipe in (plan, check, train, sweep, profile):
    app.command(cls=RecipeCommand, **in_list(of_recipe.__name__))(of_recipe)
for of_script in (watch, probe, look):
    app.command(cls=ScriptCommand, context_settings=_OF_SCRIPTS, **in_list(of_script.__name__))(of_script)
for of_run in (compare, replay, explain, report, evaluate, generate, chat, predict, export, merge):
    app.command(**in_list(of_run.__name__))(of_run)
for other in (stuck, init, doctor, validate, mcp):
    app.command(**in_list(other.__name__))(other)
app.add_typer(data_app, name="data", **in_list("data"))
app.add_typer(hardware_app, name="hardware", **in_list("hardware"))
for each in (*app.registered_commands, *data_app.registered_commands, *hardware_app.registered_commands):
    if each.callback is not None:  # typer reads the types of each command three times, and would evaluate them anew
        each.callback.__annotations__ = inspect.get_annotations(each.callback, eval_str=True)


def _version(wanted: bool) -> None:
    if wanted:
        from surefoot import __version__

        print(__version__)
        raise typer.Exit()


@app.callback()
def surefoot(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    """Know every training step before you take it: surefoot finds silent bugs in PyTorch training, and tells whether a
    run fits, how long it takes and what it costs.
    """


def main() -> None:
    """Runs the command. An error prints one message or the user's own lines; SUREFOOT_RAISE=1 raises it instead."""
    try:
        code = app(standalone_mode=False)  # without it typer draws a box around an error, which takes five lines
        raise SystemExit(code if isinstance(code, int) else 0)
    except Exception as error:
        if hasattr(error, "format_message"):
            from surefoot.cli.errors import tell_usage

            raise SystemExit(tell_usage(error)) from None
        if os.environ.get("SUREFOOT_RAISE") == "1" and not isinstance(error, SurefootError):
            raise
        from surefoot.cli.errors import tell

        raise SystemExit(tell(error)) from None
