"""The lines that made the batch that a model was called with: the loader, the data set, or the user's function."""

from __future__ import annotations

import ast

from torch import nn

from surefoot.debug.errors.definitions import Definitions
from surefoot.debug.errors.evaluate import value_of
from surefoot.debug.errors.origins import Origins
from surefoot.debug.errors.stack import Spot
from surefoot.records.explanation import Place
from surefoot.source.scopes import own_nodes


def batch_lines(stack: list[Spot]) -> tuple[Place, ...]:
    """Of the outermost call of a model that a traceback passed through; else of one that ran before a failed line."""
    origins = Origins(stack, Definitions(stack))
    users = [each for each in stack if each.is_user]
    running = [(each, each.node) for each in users if isinstance(each.node, ast.Call)]
    earlier = [(each, call) for each in reversed(users) for call in _before(each)]
    for spot, call in (*running, *earlier):
        if _is_model(call, spot):
            given = [*call.args, *(word.value for word in call.keywords)]
            return tuple(dict.fromkeys(line for each in given for line in origins.of(each, spot)))
    return ()


def _before(spot: Spot) -> list[ast.Call]:
    """The calls in the same function before the line, the last one first."""
    held = [each for each in own_nodes(spot.scope) if isinstance(each, ast.Call)] if spot.scope is not None else []
    return sorted((each for each in held if each.lineno <= spot.line), key=lambda each: -each.lineno)


def _is_model(call: ast.Call, spot: Spot) -> bool:
    called = value_of(call.func, spot)
    return isinstance(called, nn.Module) and next(called.parameters(), None) is not None
