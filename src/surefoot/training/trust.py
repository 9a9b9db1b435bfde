"""Decides whose code is executed for a run: the copy in a run directory only if you say so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from surefoot.errors import RunError
from surefoot.recipe.builtin import builtin_recipes
from surefoot.recipe.kind import split_target
from surefoot.recipe.knobs import hints_of
from surefoot.recipe.load import SETTINGS, find_function, make_recipe, source_of
from surefoot.recipe.recipe import Recipe
from surefoot.records.export import Export
from surefoot.records.profile import Profile
from surefoot.records.run import Run
from surefoot.training.own_code import module_digests
from surefoot.training.resume import changed_modules, changes_since, source_digest

COPY = "recipe.py"
"""The copy of the recipe in a run directory."""


def recipe_of(
    made: Run | Profile | Export, folder: str | Path, recipe: str | Recipe | None = None, *, trust_run: bool = False
) -> Recipe:
    """The recipe of a run or profile, loaded from code that the user trusts.

    This is the recipe that the user names, if it is unchanged, or a built-in one. Code that the directory holds or
    names is executed only with `trust_run`.
    """
    if recipe is None and made.target in builtin_recipes():
        recipe = made.target
    if recipe is None:
        if trust_run and not isinstance(made, Export):
            return _brought(made, Path(folder))
        raise RunError(f"{_refusal(made, folder)}\n{_ways_on(made, folder)}")
    changes, loaded = _held_against(made, recipe)
    if loaded is not None:
        return loaded
    if trust_run and not isinstance(made, Export):
        return _brought(made, Path(folder))
    named = recipe if isinstance(recipe, str) else "this recipe"
    raise RunError(f"{named} is not the recipe of {folder}: {'; '.join(changes)}\n{_ways_on(made, folder)}")


def _held_against(made: Run | Profile | Export, recipe: str | Recipe) -> tuple[list[str], Recipe | None]:
    """The changes since then, or the recipe with its knobs if there are none."""
    if isinstance(recipe, str):
        changes = list(_misfits(made, recipe))
        if changes:
            return changes, None
        recipe = make_recipe(recipe, made.knobs)
    changes = [*(_changes_of_settings(made, recipe) if isinstance(made, Run) else ()), *_changes_of_code(made, recipe)]
    return changes, None if changes else recipe


def _changes_of_settings(run: Run, recipe: Recipe) -> Iterator[str]:
    """A recipe that sets no global batch had the one that the run notes: one micro-batch for each of its ranks."""
    noted = run.settings.get("global_batch_tokens")
    if recipe.global_batch_tokens is None and isinstance(noted, int):
        recipe = replace(recipe, global_batch_tokens=noted)
    return changes_since(run, recipe)


def _changes_of_code(made: Run | Profile | Export, recipe: Recipe) -> Iterator[str]:
    source = source_of(recipe)
    if made.source_digest and made.source_digest != source_digest(source):
        yield f"the code in {source} has changed" if source else "the run's recipe came from a file"
    elif isinstance(made, Run) and made.source_digest and source is not None:
        for name, how in changed_modules(made, module_digests(source)):
            yield f"the code in {name}, which the recipe imports, {how}"


def _misfits(made: Run | Profile | Export, target: str) -> Iterator[str]:
    """Why the knobs of a run do not fit a recipe. Its function is called only if they fit."""
    function = find_function(target)
    if function.__name__ != made.recipe:
        yield f"that was {made.recipe!r}, this is {function.__name__!r}"
        return
    known = {**SETTINGS, **hints_of(function)}
    yield from (f"it has no knob {name!r}" for name in made.knobs if name not in known)


def _brought(made: Run | Profile | Export, folder: Path) -> Recipe:
    """The recipe, loaded from the code that the directory holds or names."""
    if not made.target:
        raise RunError(_refusal(made, folder))
    place, _ = split_target(made.target)
    held = place.endswith(".py") or made.target in builtin_recipes()
    return make_recipe(f"{folder / COPY}:{made.recipe}" if held else made.target, made.knobs)


def _refusal(made: Run | Profile | Export, folder: str | Path) -> str:
    if not made.target:
        return f"the recipe of {folder} was made in Python; pass the same one as recipe="
    return f"{folder} needs the code of its recipe, and surefoot executes no code that a run holds or names"


def _ways_on(made: Run | Profile | Export, folder: str | Path) -> str:
    """What the user can do, and which code --trust-run would execute. An export holds no code."""
    if not made.target:
        return "name the recipe of the run"
    if isinstance(made, Export):
        return f"name the recipe that made it ({made.target!r})"
    place, function = split_target(made.target)
    if place.endswith(".py") or made.target in builtin_recipes():
        executed = f"executes {Path(folder) / COPY} and calls {made.recipe!r} in it"
    else:
        executed = f"imports {place!r} and calls {function!r} in it"
    return f"name the recipe of the run ({made.target!r}), or use --trust-run, which {executed}"
