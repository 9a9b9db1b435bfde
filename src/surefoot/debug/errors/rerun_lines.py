"""Runs the lines that made a loss once more, after its backward has failed, and notes what each operation does.

It notes which operation saved which tensor for the backward, which one wrote a tensor in place, and where a result
lost its graph. The training itself keeps no such notes and pays nothing for them.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from surefoot.debug.errors.evaluate import value_of
from surefoot.debug.errors.harmless import harmless
from surefoot.debug.errors.stack import Spot, place
from surefoot.events.callers import frames
from surefoot.records.explanation import Cut, Place, Write
from surefoot.source.loop_body import name_of_call
from surefoot.source.owners import is_users
from surefoot.source.scopes import own_nodes, statement_of
from surefoot.torch_inside.autograd import writes
from surefoot.trees import tensors_in

_REPLAYED = "__surefoot_replayed__"
"""Marks the variables of statements that are run again."""
_SHAPE = re.compile(r"Tensor \[([\d, ]*)\]")


@dataclass
class _Note:
    """One operation on one tensor."""

    order: int
    tensor: torch.Tensor
    by: str
    place: Place | None
    updating: bool = False


class Replay(TorchFunctionMode):
    """Notes of the operations that run inside."""

    def __init__(self) -> None:
        super().__init__()
        self._order = 0
        self._running: tuple[str, Place | None] = ("", None)
        self.saved: list[_Note] = []
        self.written: list[_Note] = []
        self._cuts: dict[int, Cut] = {}
        self._kept: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func))
        if name == "__get__" or name.startswith("is_"):
            return func(*args, **kwargs)
        given = [each for each in tensors_in((args, kwargs)) if type(each) in (torch.Tensor, torch.nn.Parameter)]
        before = [writes(each) for each in given]
        self._order += 1
        outer, (line, updating) = self._running, running_line()
        self._running = name, line
        try:
            out = func(*args, **kwargs)
        finally:
            self._running = outer
        self._order += 1
        for tensor, count in zip(given, before, strict=True):
            if writes(tensor) > count:
                self.written.append(_Note(self._order, tensor, name, line, updating))
        self._note_cut(name, line, given, out)
        return out

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Notes a tensor that the running operation saves for the backward."""
        self.saved.append(_Note(self._order, tensor, *self._running))
        return tensor

    def _note_cut(self, name: str, line: Place | None, given: list[torch.Tensor], out: Any) -> None:
        results = [each for each in tensors_in(out) if each.is_floating_point() and not each.requires_grad]
        if not results:
            return
        known = next((self._cuts[id(each)] for each in given if id(each) in self._cuts), None)
        if known is None and any(each.requires_grad for each in given):
            known = Cut(name, line, _outer_line(), not torch.is_grad_enabled() or torch.is_inference_mode_enabled())
        for each in results if known is not None else ():
            self._kept.append(each)
            self._cuts[id(each)] = known  # type: ignore[assignment]

    def cut_of(self, loss: torch.Tensor) -> Cut | None:
        """Where the graph of a loss was cut."""
        return self._cuts.get(id(loss))

    def write_of(self, message: str) -> Write | None:
        """The first write to a tensor after it was saved, of the shape that torch's message names."""
        named = _SHAPE.search(message)
        shape = None if named is None else tuple(int(each) for each in named[1].split(",") if each.strip())
        pairs = list(self._broken())
        alike = [pair for pair in pairs if shape is None or shape in (tuple(pair[0].tensor.shape), _turned(pair[0]))]
        for saved, written in alike:
            return Write(saved.by, saved.place, written.by, written.place, written.updating)
        return None

    def _broken(self) -> Iterator[tuple[_Note, _Note]]:
        for saved in reversed(self.saved):  # the backward meets the last operation first
            memory = saved.tensor.untyped_storage().data_ptr()
            for written in self.written:
                if written.order > saved.order + 1 and written.tensor.untyped_storage().data_ptr() == memory:
                    yield saved, written
                    break


def _turned(note: _Note) -> tuple[int, ...]:
    return tuple(reversed(note.tensor.shape))


def running_line() -> tuple[Place | None, bool]:
    """The running line of user code, and whether an optimizer's step runs there."""
    updating = False
    for frame in frames():
        file = frame.f_code.co_filename
        updating = updating or frame.f_globals.get("__name__", "").startswith("torch.optim.")
        if is_users(file):
            return place(file, frame.f_lineno), updating
    return None, updating


def _outer_line() -> Place | None:
    """The line of the statements that are run again."""
    return next((place(f.f_code.co_filename, f.f_lineno) for f in frames() if _REPLAYED in f.f_globals), None)


def replayed(spot: Spot) -> tuple[Replay, Any] | None:
    """Runs the lines that made the loss of a failed backward again. Returns the notes and the loss.

    None if those lines cannot be told, if they fail or would act on files, processes or the network, or if other ranks
    would have to take part.
    """
    if (
        torch.distributed.is_available()
        and torch.distributed.is_initialized()
        and torch.distributed.get_world_size() > 1
    ):
        return None
    root = loss_expression(spot.node)
    lines = lines_of(spot, root) if root is not None else []
    if root is None or not lines:
        return None
    names, notes = {**spot.outside, **spot.names, _REPLAYED: True}, Replay()
    module = ast.fix_missing_locations(ast.Module(lines, []))
    asked = ast.fix_missing_locations(ast.Expression(root))
    quiet = io.StringIO()
    redirected = contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet)
    with redirected[0], redirected[1], harmless(), torch.random.fork_rng(devices=[]):
        try:
            with notes, torch.autograd.graph.saved_tensors_hooks(notes.pack, lambda kept: kept):
                exec(compile(module, spot.file, "exec"), names)
                return notes, eval(compile(asked, spot.file, "eval"), names)
        except Exception:  # the lines depend on what has changed since they ran
            return None


def loss_expression(node: ast.AST | None) -> ast.expr | None:
    """The expression whose gradient was asked for: `loss` in `loss.backward()`."""
    if not isinstance(node, ast.Call):
        return None
    if (
        isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
        and ast.unparse(node.func) != ("torch.autograd.backward")
    ):
        inner = node.func.value
        if isinstance(inner, ast.Call) and name_of_call(inner) == "scale" and inner.args:
            return inner.args[0]
        return node.args[0] if ast.unparse(inner) in _BACKWARD_OWNERS and node.args else inner
    return node.args[0] if node.args and name_of_call(node) in ("backward", "grad", "manual_backward") else None


_BACKWARD_OWNERS = ("accelerator", "self.accelerator", "fabric", "self.fabric")


def lines_of(spot: Spot, root: ast.expr) -> list[ast.stmt]:
    """The statements before a line, in its loop or function, that made a value or wrote into what it was made of."""
    now = statement_of(spot.scope, spot.line) if spot.scope is not None else None
    if now is None or spot.scope is None:
        return []
    before = _before(spot.scope, now)
    needed, makers = _loaded(root), set()
    for statement in reversed(before):
        if _assigned(statement) & needed and not _builds(statement, spot):
            needed |= _loaded(statement)
            makers.add(statement)
    chosen = [each for each in before if each in makers or _writes_into(each, needed, spot)]
    return chosen if any(_assigned(each) & _loaded(root) for each in makers) else []


def _builds(statement: ast.stmt, spot: Spot) -> bool:
    """Does a statement make a model, an optimizer, a function or a class? Those stay as they are."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
        return True
    kept = (torch.nn.Module, torch.optim.Optimizer, torch.utils.data.DataLoader)
    return any(isinstance(spot.find(name), kept) for name in _assigned(statement))


def _before(scope: ast.AST, now: ast.stmt) -> list[ast.stmt]:
    """The statements before this one in the blocks around it, out to the innermost loop."""
    found: list[ast.stmt] = []
    block, holder = _block_of(scope, now)
    inside = now
    while block is not None:
        found = [*block[: block.index(inside)], *found]
        if holder is None or isinstance(holder, ast.For | ast.While) or holder is scope:
            break
        inside = holder  # type: ignore[assignment]
        block, holder = _block_of(scope, inside)
    return found


def _block_of(scope: ast.AST, statement: ast.stmt) -> tuple[list[ast.stmt] | None, ast.AST | None]:
    for node in (scope, *own_nodes(scope)):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and statement in block:
                return block, node
    return None, None


def _assigned(node: ast.AST) -> set[str]:
    """The names that a statement assigns, and the lists that it appends to."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    for each in ast.walk(node):
        match each:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend" | "insert" | "update")):
                names.add(name)
    return names


def _loaded(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _writes_into(statement: ast.stmt, needed: set[str], spot: Spot) -> bool:
    """Does a statement update parameters, or write in place into something that is needed?"""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "step" and isinstance(value_of(node.func.value, spot), torch.optim.Optimizer):
                return True
            if node.func.attr.endswith("_") and not node.func.attr.endswith("__") and _loaded(node.func) & needed:
                return True
            if isinstance(statement, ast.Expr) and _loaded(node.func) & needed and _is_users_function(node.func, spot):
                return True
        if isinstance(node, ast.AugAssign) and _loaded(node.target) & needed:
            return True
        if (
            isinstance(node, ast.Subscript | ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and _loaded(node) & needed
        ):
            return True
    return False


def _is_users_function(node: ast.expr, spot: Spot) -> bool:
    code = getattr(value_of(node, spot), "__code__", None)
    return code is not None and is_users(code.co_filename)
