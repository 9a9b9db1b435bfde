"""Edits: for a few checks, the change of one line that certainly is the remedy."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Callable

from surefoot.records.finding import Edit
from surefoot.source.at_fault import case as here
from surefoot.source.at_fault import loop, losses
from surefoot.source.at_fault.case import Case
from surefoot.source.loop_body import name_of_call
from surefoot.source.program import At

_SHAPES = re.compile(r"broadcast (\([^)]*\)) and (\([^)]*\)) to")


def certain_edit(check: str, case: Case, cause: At) -> Edit | None:
    """The edit at the marked cause; None if it is not certain."""
    edit = EDITS.get(check)
    return None if edit is None else edit(case, cause)


def _text(at: At, line: int = 0) -> str:
    return linecache.getline(at.file, line or at.line).rstrip("\n")


def _inserted(before: At, code: str) -> Edit:
    """A new line before a statement, as deep as that."""
    text = _text(before)
    return Edit(before.file, before.line, "", text[: len(text) - len(text.lstrip())] + code)


def _appended(at: At, code: str) -> Edit | None:
    """The line with this code behind an expression, if the expression ends on the line where it begins."""
    node = at.node
    if not isinstance(node, ast.expr) or node.end_lineno != node.lineno or node.end_col_offset is None:
        return None
    text, column = _text(at).encode(), node.end_col_offset
    plain = isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    made = text[: node.col_offset] + (b"%b" if plain else b"(%b)") % text[node.col_offset : column]
    return Edit(at.file, at.line, text.decode(), (made + code.encode() + text[column:]).decode())


def _zero_grad(case: Case, cause: At) -> Edit | None:
    """`optimizer.zero_grad()` before the only backward, if the script never calls it and has one optimizer."""
    steps, backwards = loop.steps(case), here.called(case, "backward")
    if here.called(case, "zero_grad") or len(steps) != 1 or len(backwards) != 1:
        return None
    step, backward = case.program.statement(steps[0]), case.program.statement(backwards[0])
    function = getattr(steps[0].node, "func", None)
    owner = function.value if isinstance(function, ast.Attribute) else None
    beside = case.program.block(step) is case.program.block(backward)
    if not isinstance(owner, ast.Name | ast.Attribute) or not beside or len(loop.optimizers(case)) != 1:
        return None
    return _inserted(backward, f"{ast.unparse(owner)}.zero_grad()")


def _squeeze(case: Case, cause: At) -> Edit | None:
    """`.squeeze(-1)` behind the side of a loss that has one dimension more, of size 1."""
    said, sides = _SHAPES.search(case.seen), _sides(case, cause)
    if said is None or len(sides) != 2:
        return None
    shapes = [ast.literal_eval(said[1]), ast.literal_eval(said[2])]
    for number, other in ((0, 1), (1, 0)):
        if shapes[number] == (*shapes[other], 1):
            return _appended(sides[number], ".squeeze(-1)")
    return None


def _sides(case: Case, cause: At) -> list[At]:
    """The prediction and the target that meet: the arguments of a loss function, or the sides of a difference."""
    node = cause.node
    if isinstance(node, ast.Call):
        return [cause.other(each) for each in node.args]
    if not isinstance(node, ast.BinOp) or len(losses.differences(case)) != 1:
        return []
    sides = [cause.other(node.left), cause.other(node.right)]
    predicted = [losses.is_predicted(case, each) for each in sides]
    return [] if sum(predicted) != 1 else sides if predicted[0] else sides[::-1]


def _detached(case: Case, cause: At) -> Edit | None:
    """`.detach()` behind a loss that is only kept."""
    node = cause.node
    if isinstance(node, ast.AugAssign):
        kept: ast.expr = node.value
        target = ast.unparse(node.target)
    elif isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.func, ast.Attribute):
        kept, target = node.args[0], ast.unparse(node.func.value)
    else:
        return None
    trained = any(target in ast.unparse(each.node) for each in here.called(case, "backward"))
    return None if trained or not isinstance(kept, ast.Name) else _appended(cause.other(kept), ".detach()")


def _eval(case: Case, cause: At) -> Edit | None:
    """`model.eval()` before the block of an evaluation, if the loop of training calls `model.train()` again."""
    call = next(iter(loop.without_gradients(case)), None)
    block = case.program.statement(cause)
    function = getattr(call.node, "func", None) if call is not None else None
    if not isinstance(function, ast.Name) or not isinstance(block.node, ast.With):
        return None
    trained = [loop for each in here.called(case, "backward") for loop in case.program.loops(each)]
    again = any(loop in trained for each in here.called(case, "train") for loop in case.program.loops(each))
    return _inserted(block, f"{function.id}.eval()") if again and not here.called(case, "eval") else None


def _anomaly(case: Case, cause: At) -> Edit | None:
    """Removes the call that switches anomaly detection on."""
    statement = case.program.statement(cause).node
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return None
    alone = len(case.program.block(cause.other(statement)) or ()) < 2
    named = name_of_call(statement.value) == "set_detect_anomaly" and statement.end_lineno == statement.lineno
    return Edit(cause.file, cause.line, _text(cause), "") if named and not alone else None


EDITS: dict[str, Callable[[Case, At], Edit | None]] = {
    "anomaly-mode-in-training": _anomaly,
    "broadcast-loss": _squeeze,
    "kept-losses": _detached,
    "missing-zero-grad": _zero_grad,
    "training-mode-in-evaluation": _eval,
}
"""The edits, by the name of the check."""
