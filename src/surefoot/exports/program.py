"""The program of torch.export: for sizes as free as the network allows, and compared after reading it back."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from surefoot.events.callers import raised_at
from surefoot.exports.example_call import Call
from surefoot.exports.outputs import difference, is_plain, leaves, made_plain
from surefoot.trees import tensors_in


@dataclass(frozen=True)
class Program:
    """A written program. `free` holds, for each tensor that it takes, the dimensions that may have any size."""

    free: tuple[tuple[int, ...], ...] = ()
    left_out: tuple[str, ...] = ()
    """Outputs that are no tensors."""
    reason: str = ""
    """Why there is none."""
    smaller: tuple[tuple[Call, Any], ...] = ()
    """Calls with a free size cut, and what the network returns for each."""


def save_program(network: torch.nn.Module, call: Call, output: Any, file: Path) -> Program:
    """Exports a network and saves it. If torch.export cannot, the reason names the line of the network's code.

    `output` is what the network returns for the call. In the program, data classes among the outputs are dicts: it
    can be called without their classes.
    """
    made, program = export_program(network, call, output)
    if made is not None:
        torch.export.save(made, file)
    return program


def export_program(
    network: torch.nn.Module, call: Call, output: Any, *, fixed: bool = False
) -> tuple[torch.export.ExportedProgram | None, Program]:
    """The program, for sizes as free as the network allows, and what is known of it. None if there is a reason.

    If `fixed`, it is for the sizes of the call alone.
    """
    left_out = tuple(
        f"{path} ({type(leaf).__name__})" for path, leaf in leaves(output) if not isinstance(leaf, torch.Tensor)
    )
    plain = [] if is_plain(output) else [network.register_forward_hook(lambda _, __, output: made_plain(output))]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's advice on how to write a model; what counts is compared below
            program = _exported(network, call, fixed=fixed)
    except Exception as error:  # torch.export raises many types
        return None, Program(reason=why(error))
    finally:
        for hook in plain:
            hook.remove()
    pairs = list(zip(call.tensors, _free(program), strict=True))
    taken = _taken(network, call, pairs)
    free = tuple(tuple(dim for dim in dims if tensor.shape[dim] in taken) for tensor, dims in pairs)
    return program, Program(free, left_out, smaller=tuple(taken.values()))


def program_difference(call: Call, output: Any, file: Path, program: Program) -> float:
    """The largest difference of outputs on the example call, and on smaller ones where sizes are free."""
    loaded = torch.export.load(file).module()
    return max(_difference(loaded, each, expected) for each, expected in ((call, output), *program.smaller))


def _difference(loaded: torch.nn.Module, call: Call, expected: Any) -> float:
    try:
        got = call.of(loaded)
    except Exception:  # a guard of the program, or a shape that it cannot take
        return math.inf
    return difference(expected, got)


def _taken(
    network: torch.nn.Module, call: Call, pairs: list[tuple[torch.Tensor, tuple[int, ...]]]
) -> dict[int, tuple[Call, Any]]:
    """The free sizes that the network itself can take smaller, with a call that does. Others may depend on each other.

    `pairs` are the tensors of the call with their free dimensions.
    """
    fixed = {size for tensor, dims in pairs for dim, size in enumerate(tensor.shape) if dim not in dims}
    taken: dict[int, tuple[Call, Any]] = {}
    for size in sorted({size for tensor, dims in pairs for size in _sizes(tensor, dims)} - fixed):
        smaller = call.cut(size, 1 if size == call.batch_size else max(2, size // 2))
        try:
            taken[size] = smaller, smaller.of(network)
        except Exception:  # a network may refuse an input in any way
            continue
    return taken


def _sizes(tensor: torch.Tensor, dims: tuple[int, ...]) -> list[int]:
    return [tensor.shape[dim] for dim in dims if tensor.shape[dim] > 1]


def _exported(model: torch.nn.Module, call: Call, *, fixed: bool) -> torch.export.ExportedProgram:
    """The program with a batch of any size, with whatever sizes torch finds free, or for these sizes alone."""
    batch = torch.export.Dim("batch", min=1)
    for first in () if fixed else (batch, torch.export.Dim.AUTO):
        shapes = _shapes(call.bound(model), call.batch_size, first)
        try:
            return torch.export.export(model, call.args, call.kwargs, dynamic_shapes=shapes)
        except Exception:  # a size that the network fixes
            continue
    return torch.export.export(model, call.args, call.kwargs)


def _shapes(tree: Any, batch_size: int, first: Any) -> Any:
    """A tree of the same form that says which dimensions are free."""
    if isinstance(tree, torch.Tensor):
        free = {dim: torch.export.Dim.AUTO for dim, size in enumerate(tree.shape) if size > 1}  # torch fixes 0 and 1
        return {**free, 0: first} if tree.dim() and tree.shape[0] == batch_size else free
    if isinstance(tree, dict):
        return {name: _shapes(item, batch_size, first) for name, item in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_shapes(item, batch_size, first) for item in tree)
    return None


def _free(program: torch.export.ExportedProgram) -> tuple[tuple[int, ...], ...]:
    """The dimensions of each input that may have any size."""
    inputs = set(program.graph_signature.user_inputs)
    values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder" and node.name in inputs]
    return tuple(
        tuple(dim for dim, size in enumerate(each.shape) if not str(size).isdigit())  # a symbol such as s17
        for each in tensors_in(values)
    )


def why(error: Exception) -> str:
    """The first line of an exporter's error, with the innermost line of code that is neither torch's nor ours."""
    said = f"{type(error).__name__}: {error}".strip().splitlines()[0].removesuffix(": ")
    place = raised_at(error)
    return said if place is None else f"{os.path.basename(place[0])}:{place[1]}: {said}"
