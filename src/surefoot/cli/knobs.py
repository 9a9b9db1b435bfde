"""Lists the knobs of a recipe below the help of a command: `surefoot plan gpt --help`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

from surefoot.recipe.builtin import builtin_recipes
from surefoot.reports.console import PlainConsole

_WORDS = "surefoot.words"


class RecipeCommand(TyperCommand):
    """A command that takes a recipe: its help ends with the knobs of the recipe that the words before it name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = list(args)  # the help is printed before the arguments are parsed
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        target = next(filter(_is_target, ctx.meta.get(_WORDS, ())), None)
        if target is not None:
            PlainConsole().print(knobs_text(target))


def knobs_text(target: str) -> RenderableType:
    """Every knob of a recipe with its default and its kind, and the settings that any recipe has."""
    from surefoot.recipe.knobs import defaults_of, hints_of
    from surefoot.recipe.load import SETTINGS, find_function
    from surefoot.recipe.recipe import Recipe

    function = find_function(target)
    usual, hints = defaults_of(function), hints_of(function)
    of_all = {name: field.default for name, field in Recipe.__dataclass_fields__.items()}
    return Group(
        Text(f"Knobs of {target}", style="bold"),
        _table((name, usual.get(name, "(must be given)"), kind) for name, kind in hints.items()),
        Text("\nSettings of every recipe, with the value they have where the recipe says nothing", style="bold"),
        _table((name, of_all[name], kind) for name, kind in SETTINGS.items() if name not in hints),
    )


def _is_target(word: str) -> bool:
    return word in builtin_recipes() or word.endswith(".py") or (":" in word and "=" not in word)


def _table(rows: Iterable[tuple[str, Any, Any]]) -> Table:
    from surefoot.recipe.knobs import describe

    lines = Table.grid(padding=(0, 2))
    for name, value, kind in rows:
        lines.add_row(f"  {name}={'none' if value is None else value}", Text(describe(kind), style="dim"))
    return lines
