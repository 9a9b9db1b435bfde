"""explain: the cause of a raised error, in terms of the user's code."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

import torch

from surefoot.debug.errors.calls import called_wrongly, keys_there
from surefoot.debug.errors.causes import cause_of
from surefoot.debug.errors.definitions import Definitions
from surefoot.debug.errors.freed_graph import freed
from surefoot.debug.errors.operands import Operands
from surefoot.debug.errors.origins import Like, Origins
from surefoot.debug.errors.rerun_lines import loss_expression, replayed
from surefoot.debug.errors.samples import uneven_samples
from surefoot.debug.errors.stack import OWN_STEP, Spot, spots
from surefoot.errors import SurefootError
from surefoot.records.explanation import Explanation, Raised
from surefoot.source.scopes import statement_of

_WORKER = re.compile(r"^Caught (\w+) in DataLoader worker process", re.MULTILINE)
_ABOUT_TYPES = re.compile(r"dtype|scalar type|type \(|cast to|Input type|should be the same", re.IGNORECASE)


def explain(error: BaseException) -> Explanation | None:
    """What an error that was raised in user code means; None if there is nothing to say about it.

    It reads the frames of the traceback. If a backward failed, it runs the lines that made the loss once more: call it
    when the program is about to end.
    """
    if isinstance(error, SurefootError):
        return None
    stack = spots(error)
    last = next((each for each in reversed(stack) if each.is_user), None)
    if last is stack[-1] and _is_raised_on_purpose(last):
        return None
    raised = _facts(error, stack, last)
    cause = cause_of(raised)
    if cause is None and not any(each.is_tensor for each in raised.met):
        return None
    return Explanation(raised, cause)


def _facts(error: BaseException, stack: list[Spot], last: Spot | None) -> Raised:
    definitions = Definitions(stack)
    origins = Origins(stack, definitions)
    operands = Operands(stack, definitions, origins)
    message, worker = str(error), _WORKER.search(str(error))
    if worker is not None:
        message = message.strip().splitlines()[-1].removeprefix(f"{worker[1]}: ")
    facts: dict[str, Any] = {}
    loop = next((each for each in reversed(stack) if each.is_user or each.module == OWN_STEP), None)
    if loop is not None and (root := loss_expression(loop.node)) is not None:
        facts = _backward(message, loop, root, origins)
    is_backward = bool(facts)
    return Raised(
        type(error).__name__,
        message,
        operands.function(),
        last.place if last is not None else None,
        None if is_backward else operands.module(),
        facts.pop("met", ())
        if is_backward
        else uneven_samples(message, stack, origins, in_worker=worker is not None) or operands.met(_like(message)),
        is_backward=is_backward,
        in_worker=worker is not None,
        keys=keys_there(error, stack),
        **{"callee": None, "signature": "", **called_wrongly(error, stack)},
        **{key: value for key, value in facts.items() if key != "is_backward"},
    )


def _backward(message: str, loop: Spot, root: ast.expr, origins: Origins) -> dict[str, Any]:
    """The facts of a failed backward."""
    found: dict[str, Any] = {"is_backward": True}
    if "modified by an inplace operation" in message and (again := replayed(loop)) is not None:
        found["write"] = again[0].write_of(message)
    elif "does not require grad" in message and (again := replayed(loop)) is not None:
        found["cut"] = again[0].cut_of(again[1]) if isinstance(again[1], torch.Tensor) else None
    elif "backward through the graph a second time" in message:
        found["freed"] = freed(loop, origins)
    if loop.is_user and not any(found.get(each) for each in ("write", "freed")):
        single = Operands([loop], Definitions([loop]), origins)
        single.last = Spot(
            *(loop.file, loop.line, loop.name, loop.module), loop.names, loop.outside, _asked(root), loop.scope
        )
        found["met"] = single.met(lambda _: Like(lambda value: value.dim() > 0, through_calls=False))
    return found


def _asked(root: ast.expr) -> ast.AST:
    return ast.Assign([ast.Name("loss", ast.Store())], root)


def _like(message: str) -> Callable[[Any], Like]:
    """Which parts of a sum to follow: those of the same type, device or shape, by what the message is about."""
    if _ABOUT_TYPES.search(message):
        return lambda value: Like(lambda other: other.dtype == value.dtype)
    if "device" in message:
        return lambda value: Like(lambda other: other.device == value.device)
    return lambda value: Like(lambda other: other.shape == value.shape, through_calls=False)


def _is_raised_on_purpose(spot: Spot) -> bool:
    """Is the innermost line a `raise` or an `assert` of the user's?"""
    statement = statement_of(spot.scope, spot.line) if spot.scope is not None else None
    return statement is None or isinstance(statement, ast.Raise | ast.Assert)
