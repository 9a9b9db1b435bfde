"""Searches along the value of a loss: what it is made of, where its graph is cut, what its targets are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from surefoot.source.at_fault.case import Case, called, flowing, line, name
from surefoot.source.at_fault.loop import is_no_grad
from surefoot.source.loop_body import name_of_call
from surefoot.source.program import At, methods

LOSSES = re.compile(r"(\w*_)?(cross_entropy|nll|loss|kl_div|binary_cross_entropy\w*)(_with_logits)?|\w*Loss|KLDivLoss")
_CUTS = (
    "detach", "detach_", "item", "numpy", "tolist", "argmax", "round", "sign", "tensor", "as_tensor", "from_numpy",
    "no_grad", "inference_mode", "Tensor", "new_tensor", "ceil", "floor", "requires_grad_", "asarray", "array",
)  # fmt: skip
"""Calls whose result has no gradient."""


def loss(case: Case) -> Iterator[At]:
    """The call that computes the loss; of a loss by hand, the statement that does."""
    for each in case.flow:
        if isinstance(each.node, ast.Call):
            layers = [name(made) for made in case.program.runs(each) if isinstance(made.node, ast.Call)]
            if LOSSES.fullmatch(name(each)) or any(LOSSES.fullmatch(layer) for layer in layers):
                yield each
    yield from (case.program.statement(each) for each in case.flow[1:2] if isinstance(each.node, ast.expr))


def broadcasting(case: Case) -> Iterator[At]:
    """The call or the difference on the named line that meets two tensors."""
    yield from (each for each in loss(case) if each.line == case.line and isinstance(each.node, ast.Call))
    yield from differences(case)


def differences(case: Case) -> list[At]:
    nodes = [each for each in case.program.nodes if each.file == case.file and each.line == case.line]
    return [each for each in nodes if isinstance(each.node, ast.BinOp) and isinstance(each.node.op, ast.Sub)]


def is_predicted(case: Case, at: At) -> bool:
    """Does a module of the user's or of torch make this value?"""
    for each in case.program.made_of(at):
        if not isinstance(each.node, ast.Call):
            continue
        for run in case.program.runs(each):
            is_layer = isinstance(run.node, ast.Call) and re.fullmatch(r"Sequential|(Lazy)?Linear|Conv\dd", name(run))
            if is_layer or getattr(run.node, "name", "") == "forward":
                return True
    return False


def loss_input(case: Case, *names: str) -> Iterator[At]:
    """Calls of these names, made into the first argument of the loss before they are made into anything else."""
    for each in loss(case):
        if isinstance(each.node, ast.Call) and each.node.args:
            found = case.program.made_of(each.other(each.node.args[0]))
            yield from (part for part in found if name(part) in names)
    yield from flowing(case, *names)


def targets(case: Case) -> Iterator[At]:
    """The statements that made the targets of the loss, the first one first."""
    for each in loss(case):
        words = {word.arg: word.value for word in getattr(each.node, "keywords", ())}
        given = [*getattr(each.node, "args", ())[1:2], *(words[key] for key in ("target", "labels") if key in words)]
        for target in given:
            yield from (part for part in case.program.made_of(each.other(target)))


def cut(case: Case) -> list[At]:
    """Where the graph is cut on the way to the loss, nearest first; what makes the data last."""
    scope = case.program.scope(case.start) if case.start is not None else None

    def is_far(at: At) -> bool:
        owner = case.program.class_around(at)
        runs = owner is not None and any(each.name in ("forward", "__call__") for each in methods(owner))
        return not runs and case.program.scope(at) is not scope

    def order(at: At) -> tuple[bool, bool]:
        return is_far(at), isinstance(at.node, ast.Compare)

    return sorted((cut for each in case.flow for cut in _cuts_at(case, each)), key=order)


def _cuts_at(case: Case, at: At) -> Iterator[At]:
    if name(at) in _CUTS or isinstance(at.node, ast.Compare):
        yield at
    if isinstance(at.node, ast.Attribute) and at.node.attr == "data":
        yield at
    if isinstance(at.node, ast.Call):
        for around in case.program.above(at.node):
            if isinstance(around, ast.With) and is_no_grad(around):
                yield at.other(around.items[0].context_expr)
            if isinstance(around, ast.FunctionDef):
                yield from (at.other(part) for part in around.decorator_list if "no_grad" in ast.unparse(part))


def kept(case: Case) -> Iterator[At]:
    """What keeps the loss of a step: `losses.append(loss)`, `total += loss`."""
    names = {each.node.id for each in case.flow[:1] if isinstance(each.node, ast.Name)}
    for each in case.program.nodes:
        if name(each) in ("append", "add", "push", "extend", "appendleft", "put"):
            given = each.node.args  # type: ignore[attr-defined]
        elif isinstance(each.node, ast.AugAssign) or (
            isinstance(each.node, ast.Assign) and isinstance(each.node.targets[0], ast.Subscript | ast.Attribute)
        ):
            given = [each.node.value]
        else:
            continue
        if case.program.loops(each) and any(_holds_graph(part, names) for part in given):
            yield each


def _holds_graph(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Call) and name_of_call(node) in ("item", "detach", "float", "tolist", "numpy", "int"):
        return False
    if isinstance(node, ast.Name):
        return node.id in names
    return any(_holds_graph(each, names) for each in ast.iter_child_nodes(node))


_WHOLE = re.compile(r"\.astype\(\W?(bool|(np\.|torch\.)?u?int\d*)\W?\)$|\.(long|int|bool|round|floor|byte)\(\)$")
"""The end of a call that cuts numbers to whole ones."""


def whole_numbers(case: Case) -> Iterator[At]:
    """Where targets are cut to whole numbers or compared: on the way to the loss, or under their name anywhere."""
    way = list(targets(case))
    for each in way:
        cuts = isinstance(each.node, ast.Call) and _WHOLE.search(ast.unparse(each.node))
        if cuts or isinstance(each.node, ast.Compare):
            yield each
    names = {each.node.id for each in way if isinstance(each.node, ast.Name)}
    for each in case.program.nodes:
        given = {ast.unparse(target) for target in each.node.targets} if isinstance(each.node, ast.Assign) else set()
        if given & names and _WHOLE.search(ast.unparse(each.node)):
            yield each


def shaped(case: Case) -> Iterator[At]:
    """What gave the target or the prediction one dimension more: `keepdim=True`, `unsqueeze`, `[:, None]`."""
    for each in (*targets(case), *case.flow):
        said = ast.unparse(each.node) if isinstance(each.node, ast.Call | ast.Subscript) else ""
        end = said[-40:]
        if re.search(r"keepdims?=True|\.unsqueeze\([^)]*\)$|None\]$|(reshape|view)\(.*1\)$|, 1\)$|, 1, |squeeze", end):
            yield each


def last_compared(case: Case) -> list[At]:
    """The comparison or conversion furthest back on the way to the targets."""
    return list(whole_numbers(case))[::-1]


def last_layer(case: Case) -> Iterator[At]:
    """The layer that makes the input of the loss."""
    for each in case.flow:
        if re.fullmatch(r"(Lazy)?(Linear|Bilinear|Embedding|Conv\w*)", name(each)):
            yield each


def criterion(case: Case) -> Iterator[At]:
    """The call that made the loss function, if it is an object; else the loss."""
    for each in loss(case):
        if isinstance(each.node, ast.Call):
            yield from (made for made in case.program.runs(each) if LOSSES.fullmatch(name(made)))
    yield from loss(case)


def input_made(case: Case) -> Iterator[At]:
    """The statement that made the first argument of the loss."""
    for each in loss(case):
        if isinstance(each.node, ast.Call) and each.node.args:
            yield from case.program.values(each.other(each.node.args[0]))
    yield from loss(case)


def softmaxes(case: Case) -> Iterator[At]:
    names = ("softmax", "log_softmax", "Softmax", "LogSoftmax", "softmin")
    yield from (each for each in case.flow if name(each) in names and _is_over(each, "0"))
    yield from (each for each in case.flow if name(each) in names)
    yield from called(case, *names)


def _is_over(at: At, dim: str) -> bool:
    given = [*at.node.args[-1:], *(word.value for word in at.node.keywords if word.arg == "dim")]  # type: ignore[attr-defined]
    return any(ast.unparse(each) == dim for each in given)


def term_cut(case: Case) -> Iterator[At]:
    """Where a term of the loss lost its graph: on the named line first, else before it."""
    if "torch.autograd.grad" in case.seen:
        yield from called(case, "grad")
    found = cut(case)
    yield from (each for each in found if each.line == case.line)
    yield from (each for each in found if name(each) in ("item", "detach", "tolist", "numpy"))
    yield from found
    yield from line(case)


def negation(case: Case) -> Iterator[At]:
    """A minus on the way to the loss."""
    for each in case.flow:
        negates = isinstance(each.node, ast.UnaryOp) and isinstance(each.node.op, ast.USub)
        if negates and not isinstance(each.node.operand, ast.Constant):  # type: ignore[attr-defined]
            yield each
