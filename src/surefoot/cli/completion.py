"""Completion in a shell: names of built-in recipes, and knobs read from a recipe's source, which is not executed."""

from __future__ import annotations

import ast
from importlib.resources import files

import typer

from surefoot.recipe.kind import parsed, recipe_functions


def complete_recipe(incomplete: str) -> list[str]:
    """The built-in recipes that begin so. If there is none, the shell completes a file name."""
    from surefoot.recipe.builtin import builtin_recipes

    return [name for name in builtin_recipes() if name.startswith(incomplete)]


def complete_knob(context: typer.Context, incomplete: str) -> list[str]:
    """The knobs that begin so and are not given yet, each with its default: `layers=12`."""
    from surefoot.recipe.load import SETTINGS

    given = {word.partition("=")[0] for word in context.params.get("knobs") or ()}
    own = knobs_of(context.params.get("recipe") or "")
    known = own | {name: "" for name in SETTINGS if name not in own}
    words = [f"{name}={default}" for name, default in known.items() if name not in given]
    return [word for word in words if word.startswith(incomplete)]


def knobs_of(target: str) -> dict[str, str]:
    """The parameters of a recipe's function and their defaults, as its source says."""
    place, _, wanted = target.partition(":")
    tree = parsed(place if place.endswith(".py") else str(files("surefoot.recipes") / f"{place}.py"))
    if tree is None:
        return {}
    named = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == wanted]
    found = named if wanted else recipe_functions(tree)
    return _defaults(found[0].args) if found else {}


def _defaults(arguments: ast.arguments) -> dict[str, str]:
    placed = [*arguments.posonlyargs, *arguments.args]
    by_place = dict(zip(reversed(placed), reversed(arguments.defaults), strict=False))
    by_name = dict(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
    defaults = {each: by_place.get(each) for each in placed} | by_name
    return {each.arg: "" if default is None else _spelt(default) for each, default in defaults.items()}


def _spelt(default: ast.expr) -> str:
    """A default as a command line would give it; empty if it is no plain value."""
    try:
        value = ast.literal_eval(default)
    except ValueError:
        return ""
    return "" if value is None else str(value)
