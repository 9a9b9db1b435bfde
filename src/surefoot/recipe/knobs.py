"""Knobs: `name=value` words, read by the type hints of the function that takes them."""

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Literal

from surefoot.errors import RecipeError

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
            raise RecipeError(f"{word!r} is not a knob; write name=value, such as layers=24")
        if name in values:
            raise RecipeError(f"knob {name!r} is given twice: {values[name]!r} and {value!r}")
        values[name] = value
    return values


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The knobs of a function: its parameters and their types; a missing hint is read from the default."""
    try:
        hints, parameters = typing.get_type_hints(function), inspect.signature(function).parameters
    except (NameError, TypeError, ValueError, AttributeError) as error:  # Python looks up hints that are text here
        raise RecipeError(
            f"the parameters of {getattr(function, '__name__', function)} cannot be read: {error}"
        ) from None
    return {
        name: hints.get(name, str if any(parameter.default is each for each in _NO_TYPE) else type(parameter.default))
        for name, parameter in parameters.items()
    }


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The knobs of a function as they stand when nobody turns them."""
    parameters = inspect.signature(function).parameters
    return {name: each.default for name, each in parameters.items() if each.default is not each.empty}


def convert(name: str, text: str, hint: Any) -> Any:
    """The value that `text` spells for a knob of type `hint`."""
    for kind in _kinds(hint):
        try:
            return _read(text, kind)
        except (ValueError, KeyError, TypeError, OverflowError):
            continue
    raise RecipeError(f"knob {name}={text!r} is not {_describe(hint)}")


def unknown_knob(owner: str, name: str, known: Mapping[str, Any]) -> RecipeError:
    """The error for a knob that nobody takes; it names the nearest one."""
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(f"{knob}: {_describe(kind)}" for knob, kind in known.items())
    return RecipeError(f"{owner} has no knob {name!r}{hint}\nknobs: {listed}")


def _kinds(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return tuple(kind for part in typing.get_args(hint) for kind in _kinds(part))
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


def _describe(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, typing.get_args(hint)))
    kinds = _kinds(hint)
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "none"}
    if len(kinds) == 1:
        return names.get(hint, getattr(hint, "__name__", str(hint)))
    return " or ".join(_describe(kind) for kind in kinds)
