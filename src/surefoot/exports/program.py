"""The program of torch.export: for sizes as free as the network allows, and compared after reading it back."""

from __future__ import annotations

import keyword
import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from surefoot.errors import RunError
from surefoot.exports.example_call import Call, keywords_named
from surefoot.exports.free_sizes import Sizes, sizes_of
from surefoot.exports.outputs import difference, is_plain, leaves, made_plain
from surefoot.exports.reasons import why


@dataclass(frozen=True)
class Program:
    """A written program."""

    sizes: Sizes = Sizes()
    left_out: tuple[str, ...] = ()
    """Outputs that are no tensors."""
    reason: str = ""
    """Why there is none."""


def refuse_names(network: torch.nn.Module) -> None:
    """Raises for a name that torch.export would write into source code as it is: a keyword, a quote, a line break."""
    named = (*network.named_modules(), *network.named_parameters(), *network.named_buffers())
    for part in (part for name, _ in named for part in name.split(".")):
        if keyword.iskeyword(part) or not part.isprintable() or '"' in part or "\\" in part:
            raise RunError(
                f"torch.export cannot write a program for a module or parameter named {part!r}; rename it, or write "
                "the weights alone with --weights"
            )


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
        with warnings.catch_warnings(), keywords_named(network, call):
            warnings.simplefilter("ignore")  # torch's advice on how to write a model; what counts is compared below
            program, refused = _exported(network, call, fixed=fixed)
    except Exception as error:  # torch.export raises many types
        return None, Program(reason=why(error))
    finally:
        for hook in plain:
            hook.remove()
    return program, Program(Sizes() if fixed else sizes_of(program, network, call, refused), left_out)


def program_difference(call: Call, output: Any, file: Path, program: Program) -> float:
    """The largest difference of outputs on the example call, and on calls with other sizes where they are free."""
    loaded = torch.export.load(file).module()
    return max(_difference(loaded, each, expected) for each, expected in ((call, output), *program.sizes.others))


def _difference(loaded: torch.nn.Module, call: Call, expected: Any) -> float:
    try:
        got = call.of(loaded)
    except Exception:  # a guard of the program, or a shape that it cannot take
        return math.inf
    return difference(expected, got)


def _exported(model: torch.nn.Module, call: Call, *, fixed: bool) -> tuple[torch.export.ExportedProgram, str]:
    """The program with a batch of any size, with whatever sizes torch finds free, or for these sizes alone.

    In the last case, the text says why it could not have free sizes.
    """
    batch, refused = torch.export.Dim("batch", min=1), ""
    for first in () if fixed else (batch, torch.export.Dim.AUTO):
        shapes = _shapes(call.bound(model), call.batch_size, first)
        try:
            return torch.export.export(model, call.args, call.kwargs, dynamic_shapes=shapes), ""
        except Exception as error:  # a size that the network fixes
            refused = why(error)
    return torch.export.export(model, call.args, call.kwargs), refused


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
