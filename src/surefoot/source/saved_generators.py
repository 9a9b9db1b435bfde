"""Reads from the source which generator states are saved, and which are restored."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable, Iterator

from surefoot.source.evaluation_loop import spans
from surefoot.source.loop_body import name_of_call, words
from surefoot.source.parsing import parsed

_TORCH = ("torch.get_rng_state", "torch.random.get_rng_state", "get_rng_state", "torch.default_generator.get_state")
_OTHERS = {
    "random.getstate": "random",
    "np.random.get_state": "numpy.random",
    "numpy.random.get_state": "numpy.random",
}
_LOOKING = ("print", "len", "isinstance", "bool")
"""Calls that inspect their arguments and pass nothing on."""
_LITERALS = (ast.Tuple, ast.List, ast.Set, ast.Dict)
Lines = tuple[tuple[str, int], ...]
"""The running lines as file and number, innermost first."""


def unread_states(lines: Lines, files: Iterable[str], keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Keys of generator states in a loaded file that no source reads, each with its generator.

    `lines` is the stack that loaded the file. The generator is `torch`, `random`, `numpy.random`, or its name in the
    source.
    """
    reading = _files_that_take_by_name(lines)
    if not reading:
        return  # the file's contents are passed on to code that may read all of them
    for key in keys:
        trees = {file: parsed(file) for file in {*files, *reading} if key in "".join(linecache.getlines(file))}
        nodes = {file: list(ast.walk(tree)) if tree else [] for file, tree in trees.items()}
        every = (node for held in nodes.values() for node in held)
        written = {id(place): value for node in every for place, value in _written(node, key) if _owners(value)}
        names = [each for file in reading for each in nodes.get(file, []) if isinstance(each, ast.Constant)]
        if all(id(each) in written for each in names if each.value == key):
            yield from ((key, owner) for owner in sorted({o for value in written.values() for o in _owners(value)}))


def _written(node: ast.AST, key: str) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Where a value is stored under a key: in a dict literal, in an existing dict, or as a keyword argument."""
    if isinstance(node, ast.Dict):
        yield from ((k, v) for k, v in zip(node.keys, node.values, strict=True) if _is_text(k, key) and k is not None)
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        if _is_text(node.targets[0].slice, key):
            yield node.targets[0].slice, node.value
    elif isinstance(node, ast.keyword) and node.arg == key:
        yield node, node.value


def _is_text(node: ast.expr | None, key: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == key


def _owners(value: ast.expr) -> set[str]:
    """The generators whose states an expression reads."""
    asked = [each.func for each in ast.walk(value) if isinstance(each, ast.Call)]
    paths = {ast.unparse(each) for each in asked if isinstance(each, ast.Name | ast.Attribute)}
    own = {path.removesuffix(".get_state") for path in paths if path.endswith(".get_state")}
    own -= {path.removesuffix(".get_state") for path in (*_TORCH, *_OTHERS)}
    return own | {"torch" for path in paths if path in _TORCH} | {_OTHERS[path] for path in paths if path in _OTHERS}


def _files_that_take_by_name(lines: Lines) -> list[str]:
    """The files that read the loaded object, if all reads use keys from the source; empty if any read does not."""
    reading: list[str] = []
    for file, line in lines:
        tree = parsed(file)
        reading.append(file)
        around = [node for node in ast.walk(tree) if spans(node, line)] if tree else []
        statements = [node for node in around if isinstance(node, ast.Assign | ast.Return)]
        if not statements:
            return []
        statement = statements[-1]
        if not isinstance(statement.value, ast.Call):
            return []
        if isinstance(statement, ast.Return):
            continue  # now its caller holds the loaded object
        target = statement.targets[0]
        if not isinstance(target, ast.Name):
            return []
        scope = [each for each in around if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module)][-1]
        uses = list(_uses(scope, target.id, statement, around))
        returned = [above for _, above in uses if isinstance(above, ast.Return)]
        if not all(_is_by_name(use, above, scope) for use, above in uses if above not in returned):
            return []
        if not returned:
            return reading
    return []


def _uses(scope: ast.AST, name: str, made: ast.stmt, around: list[ast.AST]) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Reads of a name between this assignment and the next one, each with the node that reads it."""
    branches = [each for each in around if isinstance(each, ast.If | ast.Try)]
    again = [
        each.lineno
        for each in ast.walk(scope)
        if isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Store)
        if each.lineno > (made.end_lineno or 0) and not any(spans(branch, each.lineno) for branch in branches)
    ]
    last = min(again, default=1 << 60)
    for above in ast.walk(scope):
        for each in ast.iter_child_nodes(above):
            read = isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Load)
            if read and made.lineno <= getattr(each, "lineno", 0) < last:
                yield each, _above_call(above, each, scope)


def _above_call(above: ast.AST, use: ast.AST, scope: ast.AST) -> ast.AST:
    """The call for `state.get(...)`; otherwise the parent node."""
    if not isinstance(above, ast.Attribute):
        return above
    return next((each for each in ast.walk(scope) if isinstance(each, ast.Call) and each.func is above), above)


def _is_by_name(use: ast.AST, above: ast.AST, scope: ast.AST) -> bool:
    if isinstance(above, ast.Subscript):
        return above.value is use and (isinstance(above.slice, ast.Constant) or _is_listed(above.slice, scope))
    if isinstance(above, ast.Call):
        if isinstance(above.func, ast.Attribute) and above.func.value is use:
            return above.func.attr in ("get", "pop") and bool(above.args) and isinstance(above.args[0], ast.Constant)
        return name_of_call(above) in _LOOKING
    return isinstance(above, ast.Compare) or (isinstance(above, ast.If) and above.test is use)


def _is_listed(name: ast.expr, scope: ast.AST) -> bool:
    """Is this a loop variable over constants in the source, as in `for part in ("model", "optimizer")`?"""
    literals = {
        ast.unparse(each.targets[0])
        for each in ast.walk(scope)
        if isinstance(each, ast.Assign) and isinstance(each.value, _LITERALS)
    }
    loops = [each for each in ast.walk(scope) if isinstance(each, ast.For | ast.comprehension)]
    return isinstance(name, ast.Name) and any(
        name.id in words(loop.target)
        and any(isinstance(e, _LITERALS) or (isinstance(e, ast.Name) and e.id in literals) for e in ast.walk(loop.iter))
        for loop in loops
    )
