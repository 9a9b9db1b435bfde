"""Loads a recipe by name, file or module:function, and sets its knobs."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from surefoot.errors import RecipeError, did_you_mean
from surefoot.recipe.builtin import RECIPES, builtin_recipes
from surefoot.recipe.kind import kind_of, split_target
from surefoot.recipe.knobs import convert, defaults_of, hints_of, parse_words, unknown_knob
from surefoot.recipe.ranges import check_knobs, settled
from surefoot.recipe.recipe import SETTINGS as DECLARED
from surefoot.recipe.recipe import Knob, Recipe
from surefoot.source.owners import name_as_users, package_of
from surefoot.torch_inside.version import require_torch

SETTINGS = {name: each for name, each in DECLARED.items() if each.on_command_line}
"""The fields that a command line may set for any recipe, even if the recipe's function does not take them."""

ENDS = ("max_steps", "max_tokens", "max_epochs")
"""The settings that say when a run ends. In a recipe, the earlier one counts; whoever starts the run gives one."""

_SOURCE = "__surefoot_source__"


def load_recipe(target: str, words: Iterable[str] = ()) -> Recipe:
    """The recipe a target names, with its knobs set by `name=value` words.

    A target is a built-in name (`gpt`), `file.py`, `file.py:function` or `package.module:function`.
    """
    require_torch()
    function = find_function(target)
    known = known_knobs(function)
    values = parse_words(words)
    for name in values:
        if name not in known:
            raise unknown_knob(target, name, known)
    if len(ends := [f"{name}={values[name]}" for name in ENDS if values.get(name, "none").lower() != "none"]) > 1:
        raise RecipeError(f"{' and '.join(ends)} each end the run: give one of them")
    return make_recipe(target, {name: convert(name, text, known[name]) for name, text in values.items()})


def known_knobs(function: Callable[..., Any]) -> dict[str, Any]:
    """What a command line may set for a recipe, with its type: the knobs of its function, and the settings of any."""
    known = hints_of(function)
    return known | {name: each.hint for name, each in SETTINGS.items() if name not in known}


def make_recipe(target: str, values: Mapping[str, Knob]) -> Recipe:
    """The recipe a target names, with its knobs set to values."""
    function = find_function(target)
    taken = hints_of(function)
    given = {name: value for name, value in values.items() if name in taken}
    check_knobs(function, given)
    _refuse_missing(function, given, target)
    values = {**values, **(given := settled(function, given))}
    recipe = function(**given)
    if not isinstance(recipe, Recipe):
        raise RecipeError(f"{target} returned {type(recipe).__name__}, not a Recipe")
    outside: dict[str, Any] = {name: value for name, value in values.items() if name not in taken}
    overruled = _overruled({**vars(recipe), **outside}, values)
    outside |= dict.fromkeys(overruled)
    usual = defaults_of(function).items()  # None is a knob that something else decides, such as the size
    plain = {
        name: value for name, value in usual if isinstance(value, Knob) and value is not None and name not in overruled
    }
    return replace(recipe, name=function.__name__, target=_lasting(target), knobs={**plain, **values}, **outside)


def _overruled(settings: Mapping[str, Any], values: Mapping[str, Knob]) -> list[str]:
    """The settings that would end the run before the one that the user gave: a default never overrules it."""
    given = any(values.get(name) is not None and settings[name] is not None for name in ENDS)
    return [name for name in ENDS if given and name not in values]


def _refuse_missing(function: Callable[..., Any], given: Mapping[str, Knob], target: str) -> None:
    """Raises before the call, because Python's own error has a traceback without a line of user code."""
    try:
        inspect.signature(function).bind(**given)
    except TypeError as error:
        raise RecipeError(f"{target}: {error}; give it as a knob, NAME=VALUE") from None


def find_function(target: str) -> Callable[..., Any]:
    """The function a target names, without calling it."""
    place, wanted = split_target(target)
    if place.endswith(".py"):
        module = _module_from_file(Path(place), target)
    elif wanted:
        module = _module(place, target)
    elif place in builtin_recipes():
        module, wanted = importlib.import_module(f"{RECIPES}.{place}"), place
    elif kind_of(target) in ("script", "notebook"):
        raise not_a_recipe(target)
    else:
        raise RecipeError(
            f"no recipe {place!r}; {did_you_mean(place, builtin_recipes())}built in: {', '.join(builtin_recipes())}; "
            "or name a file.py, a file.py:function or a package.module:function"
        )
    found: Callable[..., Any] | None = getattr(module, wanted, None) if wanted else None
    if found is not None and (not callable(found) or inspect.isbuiltin(found)):
        raise RecipeError(f"{target} is {type(found).__name__}, not a function that returns a Recipe")
    return found if found is not None else _only_recipe(module, wanted, target)


def not_a_recipe(target: str) -> RecipeError:
    """The error for a script or a notebook in place of a recipe, with the command that runs it."""
    place, wanted = split_target(target)
    held = f"it has no function {wanted!r}" if wanted else "it has no function annotated `-> Recipe`"
    return RecipeError(
        f"{target} is a {kind_of(place)}, not a recipe: {held}, and surefoot ran nothing of it. "
        f"`surefoot watch {place}` runs it unchanged and checks its training"
    )


def source_of(recipe: Recipe) -> Path | None:
    """The file that holds a loaded recipe."""
    if not recipe.target:
        return None
    file = getattr(sys.modules.get(find_function(recipe.target).__module__), "__file__", None)
    return Path(file) if file else None


def _lasting(target: str) -> str:
    """A target that still names the same file from another working directory."""
    place, function = split_target(target)
    if not place.endswith(".py"):
        return target
    return f"{Path(place).resolve()}:{function}" if function else str(Path(place).resolve())


def _module(name: str, target: str) -> Any:
    if not all(part.isidentifier() for part in name.split(".")):
        raise RecipeError(f"{target} names no module; write file.py:function or package.module:function")
    name_as_users(name.partition(".")[0])
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise RecipeError(f"{target}: cannot import module {error.name!r}") from error
        raise


def _module_from_file(path: Path, target: str) -> Any:
    """The module in a file. A file whose source holds no recipe is not executed."""
    if not path.is_file():
        raise RecipeError(f"no file {path}; a recipe file holds a function that returns a Recipe")
    name_as_users(package_of(str(path.resolve())))
    name, source = f"surefoot_recipe_{path.resolve().stem}", path.read_bytes()
    kept = sys.modules.get(name)
    if kept is not None and vars(kept).get(_SOURCE) == (str(path.resolve()), source):
        return kept  # a second import would make new classes: a worker could not send its exceptions back
    kind = kind_of(target)
    if kind == "script":
        raise not_a_recipe(target)
    if kind == "neither":
        try:
            compile(source, str(path.resolve()), "exec")
        except SyntaxError as error:
            if error.lineno is None:  # no line is at fault: it is not text at all
                raise RecipeError(f"{path} is not Python: {error.msg}") from None
            raise
        raise _no_recipe(target, ())
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise RecipeError(f"{path} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    setattr(module, _SOURCE, (str(path.resolve()), source))
    sys.modules[name] = module  # dataclasses and pickle look the module up by name
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _only_recipe(module: Any, wanted: str, target: str) -> Callable[..., Any]:
    """The only function of a module that is annotated to return a Recipe."""
    found: dict[str, Callable[..., Any]] = {
        name: value
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__ and _returns_recipe(value)
    }
    if wanted or len(found) != 1:
        raise _no_recipe(target, found)
    (only,) = found.values()
    return only


def _no_recipe(target: str, found: Iterable[str]) -> RecipeError:
    wanted = split_target(target)[1]
    names = list(found)
    held = f"it holds: {', '.join(names)}" if names else "it holds no function annotated `-> Recipe`"
    if names:
        held += f"; write {split_target(target)[0]}:{names[0]}"
    asked = f"has no function {wanted!r}" if wanted else "does not say which function to use"
    return RecipeError(f"{target} {asked}; {held}")


def _returns_recipe(function: Any) -> bool:
    hint = getattr(function, "__annotations__", {}).get("return")
    return hint is Recipe or (isinstance(hint, str) and f".{hint}".endswith(".Recipe"))
