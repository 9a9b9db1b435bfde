"""Reads from the source how an evaluation loop combines the numbers of its batches."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from surefoot.source.loop_body import Body, Loop, is_read, key, name_of_call, uses, words
from surefoot.source.parsing import parsed

MEANS = ("mean", "fmean", "nanmean", "average")
_JOINING = ("cat", "concat", "concatenate", "hstack", "vstack", "chain")
"""Calls that join values of single samples."""
_HOOKS = ("validation_step", "test_step")
_READINGS = (*MEANS, "avg", "compute", "value", "result", "global_avg")


@dataclass(frozen=True)
class Line:
    """A line of a file."""

    file: str
    number: int


@dataclass(frozen=True)
class Kept:
    """What a loop keeps of its batches: `last` if only the last batch is kept, `mean` if all batches have equal
    weight.
    """

    kind: str
    name: str
    where: str


def loop_around(stack: Iterable[Line]) -> tuple[Line, Loop, ast.AST] | None:
    """The innermost loop around a line of the stack, with that line and the function or module around the loop."""
    for line in stack:
        tree = parsed(line.file)
        holders = [node for node in ast.walk(tree) if spans(node, line.number)] if tree else []
        loops = [node for node in holders if isinstance(node, Loop) and not _in_head(node, line.number)]
        if loops:
            loop = max(loops, key=lambda node: node.lineno)
            scopes = [each for each in holders if isinstance(each, ast.FunctionDef | ast.Module)]
            return line, loop, max(scopes, key=lambda node: getattr(node, "lineno", 0))
        hooks = [each for each in holders if isinstance(each, ast.FunctionDef) and _is_hook(each)]
        if hooks:
            return line, _as_loop(hooks[-1]), hooks[-1]
    return None


def _is_hook(function: ast.FunctionDef) -> bool:
    """Does a framework call this method for every batch of an evaluation?"""
    return function.name in _HOOKS and bool(function.body)


def _as_loop(function: ast.FunctionDef) -> ast.For:
    """A method that is called for every batch, turned into the loop whose body it is."""
    names = [each.arg for each in function.args.args]
    target = ast.Tuple([ast.Name(each, ast.Store()) for each in (*names[2:3], *names[1:2])], ast.Store())
    batches = ast.Call(ast.Name("enumerate", ast.Load()), [ast.Name("batches", ast.Load())], [])
    loop = ast.For(target, batches, function.body, [])
    return ast.fix_missing_locations(ast.copy_location(loop, function))


def kept_by(loop: Loop, scope: ast.AST, file: str, means: set[int]) -> Iterator[Kept]:
    """What a loop keeps of its batches. `means` are the lines that took the mean of a batch."""
    body = Body(loop, scope, parsed(file), means)
    if isinstance(loop, ast.For):
        after = [node for node in ast.walk(scope) if getattr(node, "lineno", 0) > (loop.end_lineno or 0)]
        for name, place in {**dict(body.last()), **dict(body.begun_anew())}.items():
            if any(_is_read(after, each) for each in body.sums_of(name)):
                continue
            if _is_read(after, name) or (name.startswith("self.") and _is_read(_outside(file, loop), name)):
                yield Kept("last", name, f"{file}:{place.lineno}")
        for place in _of_last_batch(after, body):
            yield Kept("last", ast.unparse(place), f"{file}:{place.lineno}")
        for name, place in body.running_means():
            yield Kept("mean", name, f"{file}:{place.lineno}")
        gathered = body.gathered()
        for name in (each for each in gathered if _only_last(after, each)):
            yield Kept("last", name, f"{file}:{gathered[name].lineno}")
    else:
        after = [node for node in ast.walk(scope) if getattr(node, "lineno", 0) >= loop.lineno]
        gathered = {_name_of(loop, scope): loop} if body.is_mean(loop.elt) else {}
    after += _outside(file, loop) if any(name.startswith("self.") for name in gathered) else []
    for name, place in gathered.items():
        if name not in dict(body.begun_anew()) and any(_counts_alike(node, name, body, after) for node in after):
            yield Kept("mean", name, f"{file}:{place.lineno}")


def _outside(file: str, loop: Loop) -> list[ast.AST]:
    """All nodes of a file outside a loop. Attributes may be read there."""
    tree, inside = parsed(file), set(ast.walk(loop))
    return [node for node in ast.walk(tree) if node not in inside] if tree else []


def _is_read(after: list[ast.AST], name: str) -> bool:
    """Is a name read after the loop, before it is assigned again?"""
    loads = [node.lineno for node in after if isinstance(node, ast.expr) and is_read(node, name)]
    sets = [node.lineno for node in after if isinstance(node, ast.Name) and key(node) == name and _is_set(node)]
    return bool(loads) and (name.startswith("self.") or min(loads) < min(sets, default=min(loads) + 1))


def _only_last(after: list[ast.AST], name: str) -> bool:
    """Is only the last item of a list read after the loop?"""
    lasts = [node for node in after if isinstance(node, ast.Subscript) and ast.unparse(node.slice) == "-1"]
    return 0 < sum(key(node.value) == name for node in lasts) == sum(is_read(node, name) for node in after)


def _is_set(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _of_last_batch(after: list[ast.AST], body: Body) -> Iterator[ast.expr]:
    """Numbers computed after the loop from its last batch and from what the loop made of that batch."""
    read, made = body.loop_names(), {name for name in body.assigned if "." not in name and "[" not in name}
    if any(isinstance(node, ast.Name) and node.id in read | made and _is_set(node) for node in after):
        return
    for node in after:
        if isinstance(node, ast.Compare | ast.BinOp | ast.Call) and words(node) & read and words(node) & made:
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if not body.means.isdisjoint(lines) or (
                isinstance(node, ast.Call) and name_of_call(node) in ("sum", "mean")
            ):
                yield node
                return


def _counts_alike(node: ast.AST, name: str, body: Body, after: list[ast.AST]) -> bool:
    """Does this divide a sum by the number of batches, take the mean of a list, or read a meter?"""
    if isinstance(node, ast.Call) and name_of_call(node) in MEANS:
        joined = any(isinstance(each, ast.Call) and name_of_call(each) in _JOINING for each in ast.walk(node))
        return not joined and _holds(node, name, body, after)
    if isinstance(node, ast.Attribute) and node.attr in _READINGS and name in body.metered:
        return key(node.value) == name
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and _holds(node.left, name, body, after):
        return _is_count(node.right, name, body)
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div) and key(node.target) == name:
        return _is_count(node.value, name, body)
    return False


def _holds(value: ast.expr, name: str, body: Body, after: list[ast.AST]) -> bool:
    """Does an expression contain the collected values, directly or as the iterable of a comprehension?"""
    if not name:
        return any(each is body.loop for each in ast.walk(value))
    if any(uses(each, name) for each in ast.walk(value)):
        return True
    running = (each for node in after for each in getattr(node, "generators", ()))
    over = [each.target for each in running if any(uses(part, name) for part in ast.walk(each.iter))]
    return any(words(target) & words(value) for target in over)


def _is_count(by: ast.expr, name: str, body: Body, depth: int = 0) -> bool:
    """Is this the number of batches: a counter, a length, or a division rounded up?"""
    if isinstance(by, ast.Call) and name_of_call(by) == "max" and by.args:
        return any(_is_count(each, name, body, depth) for each in by.args)
    if isinstance(by, ast.Call) and name_of_call(by) == "len" and by.args:
        return ast.unparse(by.args[0]) in body.iterated | {name}
    if any(isinstance(each, ast.FloorDiv) or getattr(each, "attr", "") == "ceil" for each in ast.walk(by)):
        return True
    if isinstance(by, ast.BinOp) and isinstance(by.op, ast.Add):
        return key(by.left) in body.counted
    made = body.assigned.get(key(by))
    if made is not None and depth < 3:
        return _is_count(made, name, body, depth + 1)
    known = body.outside.get(key(by))
    if known is not None and key(by) not in body.added and depth < 3:
        return _is_count(known, name, body, depth + 1)
    return body.counts(key(by)) or key(by) in body.counted


def _name_of(loop: Loop, scope: ast.AST) -> str:
    """The name that a comprehension is assigned to."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and node.value is loop and isinstance(node.targets[0], ast.Name):
            return node.targets[0].id
    return ""


def spans(node: ast.AST, line: int) -> bool:
    """Is a line inside this node?"""
    first, last = getattr(node, "lineno", line + 1), getattr(node, "end_lineno", 0) or 0
    return isinstance(node, ast.Module) or first <= line <= last


def _in_head(loop: Loop, line: int) -> bool:
    """Is a line in the iterable of a loop instead of its body?"""
    if isinstance(loop, ast.For):
        return line < loop.body[0].lineno
    return not any(isinstance(node, ast.Call) for node in ast.walk(loop.elt))
