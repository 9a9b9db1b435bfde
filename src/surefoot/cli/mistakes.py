"""What an unknown command or option may have meant: a recipe, a knob, or an argument of the user's script."""

from __future__ import annotations

import shlex
from typing import Any

from typer.core import TyperCommand

from surefoot.cli.commands import Commands
from surefoot.cli.completion import knobs_of
from surefoot.cli.groups import ORDER
from surefoot.errors import near
from surefoot.recipe.builtin import builtin_recipes


class AllCommands(Commands):
    """The list of commands. For a recipe or a file in place of a command, the error names the commands that take it."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:  # its class is click's, or that of typer's own copy of click
            if hasattr(error, "message") and (meant := _command_for(args[0])):
                error.message = f"No such command {args[0]!r}. {meant}"
            raise


class AdvisingCommand(TyperCommand):
    """A command whose error for an unknown option says what else the user may have meant."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if hasattr(error, "possibilities") and hasattr(error, "message"):
                option = error.option_name  # type: ignore[attr-defined]
                own = [name for each in self.params for name in each.opts if name.startswith("--")]
                error.possibilities = [f"--{name}" for name in near(option.lstrip("-"), [n[2:] for n in own])]
                place = next((number for number, word in enumerate(words) if word.startswith(option)), 0)
                error.message = ". ".join(filter(None, (error.message, self.advice(words, place))))
            raise

    def advice(self, words: list[str], place: int) -> str:
        """A sentence on the option at a place among the words of the command line; empty if there is none."""
        raise NotImplementedError


class ScriptCommand(AdvisingCommand):
    """A command that runs a script. Options that are not its own may be the script's."""

    def advice(self, words: list[str], place: int) -> str:
        whole = shlex.join([*words[:place], "--", *words[place:]])
        return f"Write -- before arguments of your script: surefoot {self.name} {whole}"


def knob_advice(words: list[str], place: int) -> str:
    """How to write an option that is a knob of the recipe among the words, or is spelt like one."""
    from surefoot.recipe.load import SETTINGS

    name, given, value = words[place].lstrip("-").replace("-", "_").partition("=")
    value = value if given else next(iter(words[place + 1 : place + 2]), "VALUE")
    known = {**SETTINGS, **{knob: 1 for word in words[:place] for knob in knobs_of(word)}}
    meant = [name] if name in known else near(name, known)
    return f"Knobs are written without dashes: {' or '.join(f'{each}={value}' for each in meant)}" if meant else ""


def _command_for(word: str) -> str:
    if word in builtin_recipes():
        return f"It is a recipe: write `surefoot train {word}` or `surefoot plan {word}`"
    if word.endswith(".py"):
        return f"It is a file: write `surefoot watch {word}` for a script, `surefoot train {word}` for a recipe"
    if word.endswith(".ipynb"):
        return f"It is a notebook: write `surefoot watch {word}`"
    return ""
