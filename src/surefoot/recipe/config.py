"""Config: knobs of a recipe in a TOML file, written as on the command line, which overrules them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from surefoot.errors import RecipeError, first_line
from surefoot.plain_files import read_plain
from surefoot.recipe.knobs import defaults_of, describe, hints_of, unknown_knob
from surefoot.recipe.load import ENDS, find_function, known_knobs

if sys.version_info >= (3, 11):
    import tomllib
else:  # the same parser, as a package of its own
    import tomli as tomllib

_PLAIN = (str, bool, int, float)


def with_config(target: str, words: Iterable[str], file: Path) -> list[str]:
    """The knobs of a file and of the command line as `name=value` words. A name that has both keeps the second.

    If the command line says when the run ends, what the file says of it is left out.
    """
    given = list(words)
    names = {word.partition("=")[0] for word in given}
    if names & {*ENDS}:
        names |= {*ENDS}
    known = known_knobs(find_function(target))
    kept = _read(file)
    for name in kept:
        if name not in known:
            raise RecipeError(f"{file}: {unknown_knob(target, name, known)}")
    return [f"{name}={_text(file, name, value)}" for name, value in kept.items() if name not in names] + given


def settings_text(function: Callable[..., Any], command: str, placeholders: Mapping[str, str]) -> str:
    """A TOML file with all knobs of a function, each with its default and its kind, behind a comment sign.

    Knobs without a default have the text of `placeholders` as their value.
    """
    usual, lines = (
        defaults_of(function),
        [f"# Knobs of `{command}`.", "# A knob on the command line overrules this file."],
    )
    for name, hint in hints_of(function).items():
        shown = f"{name} = {_toml(usual.get(name, placeholders.get(name, '')))}  # {describe(hint)}"
        lines.append(shown if name not in usual else f"# {shown}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """A value as TOML writes it. There is no null, so None is the text that a command line has for it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    text = str("none" if value is None else value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_plain(file.resolve()).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecipeError(f"{file} is not TOML: {first_line(error)}") from None
    except (OSError, RuntimeError) as error:  # `resolve` raises RuntimeError for a link to itself
        raise RecipeError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _text(file: Path, name: str, value: Any) -> str:
    """A value as the command line would give it. A list has commas between its values."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, _PLAIN):
        return str(value)
    if isinstance(value, list) and value and all(isinstance(each, _PLAIN) for each in value):
        return ",".join(_text(file, name, each) for each in value)
    kind = "a table" if isinstance(value, dict) else f"the {type(value).__name__} {value}"
    raise RecipeError(
        f"{file}: {name} is {kind}; a knob is a text, a number, true, false or a list of these, at the top of the file"
    )
