"""Printed pairs: the names and numbers in a line of text, as scripts print them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_WRAPPED = re.compile(r"\b(?:tensor|(?:np|numpy|torch)\.\w+|float\d*)\((?=[-+.\d])")
_BAR = re.compile(r"\d(?:it/s|s/it)|\?it/s|%\|")
"""A progress bar: how often it is drawn depends on the clock."""
_TOKEN = re.compile(
    r"""
    (?P<share>(?<![\w.,/])\d+/\d+(?![\w/.]|,\d))
    | (?P<number>(?<![\w.,])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?!\.?\w|,\d|/|:\d))(?P<percent>\s?%)?
    | (?P<word>[A-Za-z_][\w@]*(?:[/.\-][\w@]+)*)
    | (?P<other>[-+]?\.?\d[\w.,:/]*)
    | (?P<cut>[|,;\[\]<>\t])
    | (?P<bind>[:=]|->)
    """,
    re.VERBOSE,
)
_NOT_FINITE = {"nan": math.nan, "inf": math.inf}
_LONGEST = 1000


class Pair(NamedTuple):
    """A number with the words in front of it."""

    name: tuple[str, ...]
    before: tuple[str, ...]
    """The words further in front of it, which may say what the line is about."""
    value: float
    decimals: int
    """The digits after the point, as printed."""
    percent: bool = False


def pairs_in(line: str) -> Iterator[Pair]:
    """The numbers of a line that have a name: `loss: 0.31`, `loss=0.31`, `acc 93.2%`, `accuracy 9/10`, a dict.

    Numbers in lists and in tables have none. A colon ends what a line is about: in `test: loss 0.3` the name is `loss`.
    """
    if len(line) > _LONGEST or _BAR.search(line):
        return
    line = _WRAPPED.sub("", _COLOURS.sub("", line)).translate(_BLANKS)
    name: list[str] = []
    before: list[str] = []
    bound = False
    for token in _TOKEN.finditer(line):
        kind, text = token.lastgroup, token[0]
        number = _number(token) if name else None
        if number is not None:
            yield Pair(tuple(name), tuple(before), *number)
        if kind == "word" and number is None:
            if bound:
                before, name, bound = before + name, [], False
            name.append(text)
        elif kind == "bind":
            bound = bool(name)
        else:
            before, name, bound = before + name, [], False


_BLANKS = str.maketrans(dict.fromkeys("\"'{}()*#", " "))


def _number(token: re.Match[str]) -> tuple[float, int, bool] | None:
    """The value, its decimals and whether it is in percent; None if this is no number."""
    if token["number"]:
        text = token["number"]
        mantissa, _, power = text.lower().partition("e")
        decimals = len(mantissa.partition(".")[2]) - int(power or 0)
        return float(text), max(0, decimals), token["percent"] is not None
    if token["share"]:
        part, whole = map(int, token["share"].split("/"))
        return (part / whole, len(str(whole)), False) if 0 <= part <= whole > 0 else None
    if token["word"] and token["word"].lower() in _NOT_FINITE:
        return _NOT_FINITE[token["word"].lower()], 0, False
    return None
