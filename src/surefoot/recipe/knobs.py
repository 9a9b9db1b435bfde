"""Knobs: reads `name=value` words by the type hints of the function that takes them."""

import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, Literal

from surefoot.errors import RecipeError, did_you_mean

_TRUTH = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}

_NO_TYPE = (None, inspect.Parameter.empty)


def parse_words(words: Iterable[str]) -> dict[str, str]:
    """`["layers=24", "lr=3e-4"]` as a dict of strings."""
    values: dict[str, str] = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name:
            raise RecipeError(f"{word!r} is not a knob; write name=value, for example layers=24")
        if name in values:
            raise RecipeError(f"knob {name!r} is given twice: {values[name]!r} and {value!r}")
        values[name] = value
    return values


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The knobs of a function: its parameters and their types. Without a hint, the default gives the type."""
    try:
        hints, parameters = typing.get_type_hints(function), inspect.signature(function).parameters
    except (NameError, TypeError, ValueError, AttributeError) as error:  # Python evaluates hints given as strings here
        raise RecipeError(
            f"the parameters of {getattr(function, '__name__', function)} cannot be read: {error}"
        ) from None
    return {
        name: hints.get(name, str if any(parameter.default is each for each in _NO_TYPE) else type(parameter.default))
        for name, parameter in parameters.items()
    }


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The default values of a function's knobs."""
    parameters = inspect.signature(function).parameters
    return {name: each.default for name, each in parameters.items() if each.default is not each.empty}


def convert(name: str, text: str, hint: Any) -> Any:
    """Reads `text` as the value of a knob of type `hint`."""
    value: Any = None
    for kind in sorted(kinds_of(hint), key=lambda kind: kind is not type(None)):  # "none" could be any text
        try:
            value = _read(text, kind)
        except (ValueError, KeyError, TypeError, OverflowError):
            continue
        if not isinstance(value, float) or math.isfinite(value):
            return value
    what = f"{value}; write a finite number" if isinstance(value, float) else f"not {describe(hint)}"
    raise RecipeError(f"knob {name}={text!r} is {what}")


def unknown_knob(target: str, name: str, known: Iterable[str]) -> RecipeError:
    """The error for an unknown knob. It names the most similar ones; the whole list would bury them."""
    owner = target.rpartition(":")[2] or target
    return RecipeError(
        f"{owner} has no knob {name!r}; {did_you_mean(name, known)}`surefoot plan {target} --help` lists all"
    )


def describe(hint: Any) -> str:
    """The kind of values that a hint allows, in words."""
    if typing.get_origin(hint) is Literal:
        several = "one of " if len(typing.get_args(hint)) > 1 else ""
        return several + ", ".join(map(str, typing.get_args(hint)))
    kinds = kinds_of(hint)
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "none"}
    if len(kinds) == 1:
        return names.get(hint, getattr(hint, "__name__", str(hint)))
    return " or ".join(describe(kind) for kind in kinds)


def kinds_of(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return tuple(kind for part in typing.get_args(hint) for kind in kinds_of(part))
    return (hint,)


def _read(text: str, kind: Any) -> Any:
    if kind is type(None):
        return {"none": None}[text.lower()]
    if kind is bool:
        return _TRUTH[text.lower()]
    if kind is int:
        return _integer(text)
    if typing.get_origin(kind) is Literal:
        return {str(choice): choice for choice in typing.get_args(kind)}[text]
    return kind(text)


def _integer(text: str) -> int:
    """`8`, `524_288` and `1e9`, but not `2.5`."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)
