"""The syntax tree of a file of the user's."""

from __future__ import annotations

import ast
import linecache
from functools import cache


@cache
def parsed(file: str) -> ast.Module | None:
    """The syntax tree of a file; None if Python cannot read it. It is parsed once, until `forget_files`."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


def forget_files() -> None:
    """Reads files again when they are next asked for: between two runs of a script, it may have been edited."""
    linecache.checkcache()
    parsed.cache_clear()
