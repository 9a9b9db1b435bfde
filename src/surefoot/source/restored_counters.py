"""Reads from the source which attributes are set from a checkpoint's counters."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator
from functools import cache

from surefoot.source.loop_body import assigned
from surefoot.source.parsing import parsed

_RESTORES = re.compile(r"self\.\w+\b[^\n]*=[^\n]*[\[(]\s*[\"']\w*(epoch|step|iter)", re.IGNORECASE)


@cache
def counters_restored(file: str) -> dict[str, str]:
    """Attributes of `self` that are assigned from a dict's counter, and the name of that counter."""
    tree = parsed(file) if _RESTORES.search("".join(linecache.getlines(file))) else None
    found = {}
    for node in ast.walk(tree) if tree else ():
        for target, value in assigned(node) if isinstance(node, ast.Assign) else ():
            key = next(_keys(value), None)
            if key is not None and isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                found[target.attr] = key
    return found


def _keys(value: ast.expr) -> Iterator[str]:
    """The keys that an expression looks up in a dict."""
    for node in ast.walk(value):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            yield str(node.slice.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            yield from (str(each.value) for each in node.args[:1] if isinstance(each, ast.Constant))
