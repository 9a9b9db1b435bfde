"""Lists the knobs of a recipe below the help of a command: `surefoot plan gpt --help`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surefoot.cli.mistakes import AdvisingCommand, knob_advice
from surefoot.recipe.builtin import builtin_recipes
from surefoot.recipe.kind import kind_of
from surefoot.reports.console import PlainConsole

_WORDS = "surefoot.words"


class RecipeCommand(AdvisingCommand):
    """A command that takes a recipe: its help ends with the knobs of the recipe that the words before it name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = list(args)  # the help is printed before the arguments are parsed
        return super().parse_args(ctx, args)

    def advice(self, words: list[str], place: int) -> str:
        return knob_advice(words, place)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        target = next(filter(_is_target, ctx.meta.get(_WORDS, ())), None)
        if target is not None and kind_of(target) == "recipe":
            PlainConsole().print(knobs_text(target))


def knobs_text(target: str) -> RenderableType:
    """Every knob of a recipe with its default and its kind, and the settings that any recipe has."""
    from surefoot.recipe.knobs import defaults_of, hints_of
    from surefoot.recipe.load import SETTINGS, find_function

    function = find_function(target)
    usual, hints = defaults_of(function), hints_of(function)
    return Group(
        Text(f"Knobs of {target}", style="bold"),
        _table((name, usual.get(name, "(must be given)"), kind, _line(name)) for name, kind in hints.items()),
        Text("\nSettings of every recipe, with the value they have where the recipe says nothing", style="bold"),
        _table((name, each.default, each.hint, _line(name)) for name, each in SETTINGS.items() if name not in hints),
    )


def _is_target(word: str) -> bool:
    return word in builtin_recipes() or word.endswith(".py") or (":" in word and "=" not in word)


def _line(name: str) -> str:
    """What a setting does, in one sentence. Empty for a knob of the recipe's own."""
    from surefoot.recipe.load import SETTINGS

    return SETTINGS[name].sentence if name in SETTINGS else ""


def _table(rows: Iterable[tuple[str, Any, Any, str]]) -> Table:
    from surefoot.recipe.knobs import describe

    lines = Table.grid(padding=(0, 2))
    for name, value, kind, about in rows:
        kinds = Text(describe(kind), style="dim")
        shown = Text(" ").join([Text(about), Text.assemble("(", kinds, ")", style="dim")]) if about else kinds
        lines.add_row(f"  {name}={'none' if value is None else value}", shown)
    return lines
