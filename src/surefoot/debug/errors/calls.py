"""Calls with other arguments than a function takes, and keys that are not there."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from surefoot.debug.errors.evaluate import value_of
from surefoot.debug.errors.stack import Spot, Unknown, place
from surefoot.source.owners import is_users


def keys_there(error: BaseException, stack: list[Spot]) -> tuple[str, ...]:
    """The keys of the mapping in which a key was missing."""
    spot = next((each for each in reversed(stack) if each.is_user), None)
    if not isinstance(error, KeyError) or spot is None or not isinstance(spot.node, ast.Subscript):
        return ()
    held = value_of(spot.node.value, spot)
    return tuple(map(str, list(held)[:20])) if isinstance(held, Mapping) else ()


def called_wrongly(error: BaseException, stack: list[Spot]) -> dict[str, Any]:
    """The function of the user's that was called with other arguments than it takes, and its signature."""
    spot = next((each for each in reversed(stack) if each.is_user), None)
    if not isinstance(error, TypeError) or "argument" not in str(error) or spot is None:
        return {}
    if not isinstance(spot.node, ast.Call):
        return {}
    called = value_of(spot.node.func, spot)
    function = called.forward if isinstance(called, nn.Module) else called
    if isinstance(called, type):
        function = called.__init__  # type: ignore[misc]
    code = getattr(function, "__code__", None)
    if called is Unknown or code is None or not is_users(code.co_filename):
        return {}
    return {"callee": place(code.co_filename, code.co_firstlineno), "signature": str(inspect.signature(function))}
