"""The options of a script's command line, as its source declares them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.source.loop_body import name_of_call
from surefoot.source.parsing import parsed


@dataclass(frozen=True)
class Option:
    """An option: of a number its value, as given or by default; of a flag None."""

    name: str
    number: int | None = None


def options_of(file: str, args: Sequence[str]) -> list[Option]:
    """The numbers of a command line, those given first, then the flags that were not given.

    Numbers that are only declared are those of `add_argument` with a default. Options declared in other files are
    known only if they were given.
    """
    given = {name: int(value) for name, value in _given(args) if value.isdecimal()}
    declared = {name: node for node in _declarations(file) for name in _long_names(node)}
    typed = {word.partition("=")[0] for word in args}
    defaults = {
        name: value for name, node in declared.items() if name not in typed and (value := _default(node)) is not None
    }
    flags = [name for name, node in declared.items() if name not in typed and _is_flag(node)]
    return [*(Option(name, value) for name, value in {**given, **defaults}.items()), *map(Option, flags)]


def with_option(args: Sequence[str], option: Option) -> list[str]:
    """A command line on which an option has this value, or this flag is set; the rest is as it was."""
    if option.number is None:
        return [*args, option.name]
    words, value = list(args), str(option.number)
    for place, word in enumerate(words):
        if word.startswith(f"{option.name}="):
            return [*words[:place], f"{option.name}={value}", *words[place + 1 :]]
        if word == option.name and place + 1 < len(words):
            return [*words[: place + 1], value, *words[place + 2 :]]
    return [*words, option.name, value]


def _given(args: Sequence[str]) -> list[tuple[str, str]]:
    """Each option with its value: `--batch 8` and `--batch=8`."""
    joined = [(name, value) for word in args if word.startswith("-") for name, _, value in [word.partition("=")]]
    apart = [(word, args[place + 1]) for place, word in enumerate(args[:-1]) if word.startswith("-")]
    return [(name, value) for name, value in [*joined, *apart] if value]


def _declarations(file: str) -> list[ast.Call]:
    tree = parsed(file)
    nodes = [] if tree is None else list(ast.walk(tree))
    return [node for node in nodes if isinstance(node, ast.Call) and name_of_call(node) == "add_argument"]


def _long_names(node: ast.Call) -> list[str]:
    names = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return [name for name in names if name.startswith("--")][:1]


def _keyword(node: ast.Call, name: str) -> object:
    found = next((each.value for each in node.keywords if each.arg == name), None)
    return found.value if isinstance(found, ast.Constant) else None


def _default(node: ast.Call) -> int | None:
    value = _keyword(node, "default")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_flag(node: ast.Call) -> bool:
    return _keyword(node, "action") == "store_true"
