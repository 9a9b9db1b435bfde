"""Setting: declaration of a field of `Recipe`: checks, command line, help, resume and compare follow from it."""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import NoneType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from surefoot.errors import RecipeError
from surefoot.recipe.knobs import kinds_of
from surefoot.recipe.ranges import MOST, Range

Default = TypeVar("Default")
Check = Callable[[str, Any], Any]
"""Takes the name and the value of a setting. Returns the value to keep, or raises a `RecipeError`."""
_KEY = "setting"


@dataclass(frozen=True)
class Setting:
    """What is known of a field of a recipe besides its type and its default."""

    about: str
    """Its text in the reference. The first sentence is its line in the help of a command."""
    at_least: float | None = None
    above: float | None = None
    """A number needs one of these two."""
    at_most: float = MOST
    also: tuple[int, ...] = ()
    """Numbers outside of the range that are allowed too."""
    check: Check | None = None
    """Takes the place of the check that follows from the type."""
    needs: tuple[str, Callable[[Any], object]] | None = None
    """What any value but the default needs: the end of the error message, and whether a recipe has it."""
    changes: Literal["nothing", "layout", "rounding", "training"] = "training"
    """What another value changes in a run.

    `nothing`: no bit, so a run may resume with another value. `layout`: only rounding, and a run may resume.
    `rounding`: `compare` allows for it, and a run does not resume. `training`: everything.
    """
    part: Literal["run", "training", "update"] = "run"
    """Where it takes effect.

    `update`: a step of the recipe's own does this itself, so only the default is allowed there. This and `training`
    have their default where a model is not trained, for example to evaluate an exported file. `run`: anywhere.
    """
    command_line: bool = True
    """Whether `name=value` may set it for any recipe."""
    hint: Any = None
    """Its type. A function's is `Callable`: the types in it are torch's, which is not imported here."""
    default: Any = None

    @property
    def sentence(self) -> str:
        """The first sentence of `about`, without its full stop and the marks of code."""
        return re.split(r"(?<=[.?!])\s", self.about)[0].removesuffix(".").replace("`", "")

    @property
    def on_command_line(self) -> bool:
        """Whether the command line may set it. The text of a command line cannot be a function."""
        return self.command_line and Callable not in kinds_of(self.hint)

    @property
    def range(self) -> Range | None:
        """The numbers that are allowed. None if it is not a number."""
        parts = kinds_of(self.hint)
        kind = next((kind for kind in (int, float) if kind in parts), None)
        if kind is None or self.check is not None:
            return None
        low = self.at_least if self.above is None else self.above
        if low is None:
            raise TypeError(f"a number needs at_least or above: {self.about}")
        word = next((choice for part in parts for choice in get_args(part)), None)
        return Range(kind, low, self.at_most, self.above is not None, NoneType in parts, self.also, word)

    def checked(self) -> Check:
        """The check that its declaration and its type ask for."""
        parts, wanted = kinds_of(self.hint), self.range
        if self.check is not None:
            return self.check
        if wanted is not None:
            return wanted.check
        if Callable in parts:
            return _function if NoneType in parts else _required_function
        if any(get_origin(part) is Literal for part in parts):
            return _one_of(choices(self.hint))
        return _truth(choices(self.hint)) if bool in parts else text("text", none=NoneType in parts)

    def refuse_missing(self, recipe: Any, name: str) -> None:
        """Raises if a value other than the default needs something that the recipe has not."""
        value = getattr(recipe, name)
        if self.needs is None or value == self.default or self.needs[1](recipe):
            return
        shown = name if callable(value) else f"{name}={value!r}"
        raise RecipeError(f"{shown} needs {self.needs[0].format_map(vars(recipe))}")


def declared(about: str, **how: Any) -> Mapping[str, Setting]:
    """The metadata of a field that has no default: `model: Callable[[], Any] = field(metadata=declared("..."))`."""
    return {_KEY: Setting(about, **how)}


def setting(default: Default, about: str, **how: Any) -> Default:
    """A field with its default, its sentence, and what `Setting` can say: `setting(1, "The seed.", at_least=0)`."""
    made: Any = field(default=default, metadata=declared(about, **how))
    return made  # to a type checker it is the default, as if nothing were declared


def settings_in(owner: type) -> dict[str, Setting]:
    """The declared fields of a data class by name, each with its type and its default."""
    names = vars(sys.modules[owner.__module__])
    return {
        each.name: replace(each.metadata[_KEY], hint=_hint(str(each.type), names), default=each.default)
        for each in fields(owner)
        if _KEY in each.metadata
    }


def _hint(written: str, names: dict[str, Any]) -> Any:
    if "Callable[" in written:
        return Callable | None if written.endswith("None") else Callable
    kinds = kinds_of(eval(written, names))
    return Union[tuple(kind for kind in kinds if get_origin(kind) is not tuple)]  # noqa: UP007  # several of one kind


def choices(hint: Any) -> tuple[Any, ...]:
    """The values of a type that has only a few: literals, truth values and None."""
    few: dict[Any, tuple[Any, ...]] = {bool: (True, False), NoneType: (None,)}
    return tuple(value for part in kinds_of(hint) for value in few.get(part, get_args(part)))


def _one_of(allowed: tuple[Any, ...]) -> Check:
    def check(name: str, value: Any) -> Any:
        if value not in allowed:
            raise RecipeError(f"{name} {value!r} is not one of {', '.join(map(str, allowed))}")
        return value

    return check


def _truth(allowed: tuple[Any, ...]) -> Check:
    def check(name: str, value: Any) -> Any:
        if not any(value is choice for choice in allowed):  # 1 == True, and whoever writes 1 may mean a number
            raise RecipeError(f"{name}={value!r} must be one of {', '.join(map(str, allowed))}")
        return value

    return check


def text(what: str, *, none: bool = True, empty: bool = True) -> Check:
    """A check for text. `what` ends the message."""

    def check(name: str, value: Any) -> Any:
        if not ((value is None and none) or (isinstance(value, str) and (value or empty))):
            raise RecipeError(f"{name}={value!r} must be {what}{', or None' if none else ''}")
        return value

    return check


def patterns(of: str) -> Check:
    """A check for shell patterns. Several are joined into one text, as a command line gives them."""

    def check(name: str, value: Any) -> Any:
        given = (value,) if isinstance(value, str) else value
        if given is None:
            return None
        if not (isinstance(given, tuple | list) and given and all(isinstance(x, str) and x.strip() for x in given)):
            raise RecipeError(f"{name}={value!r} must be a pattern of {of}")
        parts = [part.strip() for pattern in given for part in pattern.split(",")]
        return ",".join(filter(None, parts))

    return check


def rates(name: str, value: Any) -> Any:
    """A check for shell patterns of parameter names, each with a share of the learning rate: `head.*=10`."""
    joined = patterns("parameter names with a share of the rate, such as 'head.*=10'")(name, value)
    for part in joined.split(",") if joined else ():
        try:
            share = float(part.rpartition("=")[2])
        except ValueError:
            share = math.nan
        if not ("=" in part and math.isfinite(share) and share >= 0):
            raise RecipeError(
                f"{name}={part!r} must be a pattern and a share of the learning rate, such as 'head.*=10'"
            )
    return joined


def _required_function(name: str, value: Any) -> Any:
    if not callable(value):
        raise RecipeError(f"{name} must be a function, not {type(value).__name__}")
    return value


def _function(name: str, value: Any) -> Any:
    if not (value is None or callable(value)):
        raise RecipeError(f"{name} must be a function, or None, not {type(value).__name__}")
    return value


def called_with(*arguments: str) -> Check:
    """A check for a function, or None, that can be called with these arguments."""

    def check(name: str, value: Any) -> Any:
        if _function(name, value) is not None and not takes(value, len(arguments)):
            count = {1: "one thing", 2: "two things"}[len(arguments)]
            raise RecipeError(f"{name} must be a function of {count}: {name}({', '.join(arguments)})")
        return value

    return check


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with this many arguments. True if Python cannot say."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True
