"""The sizes of inputs that a program leaves free, those that it fixes and why, and calls with other sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from surefoot.exports.example_call import Call
from surefoot.exports.reasons import why
from surefoot.records.export import FixedSize, SizeLimit

Tried = tuple[Call, Any] | Exception
"""A call with other sizes and what the network returns for it, or what it raises."""


@dataclass(frozen=True)
class Sizes:
    """What is known of the sizes of a program."""

    free: tuple[tuple[int, ...], ...] = ()
    """For each tensor that it takes, the dimensions whose size is free."""
    fixed: tuple[FixedSize, ...] = ()
    limits: tuple[SizeLimit, ...] = ()
    others: tuple[tuple[Call, Any], ...] = ()
    """Calls with other sizes, and what the network returns for each."""


@dataclass(frozen=True)
class _Place:
    """A dimension of an input. In the program its size is a number, or a symbol such as s17."""

    number: int
    input: str
    dim: int
    size: int
    symbol: str
    kind: int
    """Dimensions of one kind have other sizes together."""


def sizes_of(program: torch.export.ExportedProgram, network: torch.nn.Module, call: Call, refused: str) -> Sizes:
    """A size is free if torch.export says so and the network takes another. `refused` says why torch freed none."""
    places = list(_places(program, call))
    tried = {kind: _tried(network, call.cut(kind)) for kind in sorted({each.kind for each in places})}
    bound = {each.kind for each in places if each.symbol.isdigit()}
    taken = {kind: each for kind, each in tried.items() if kind not in bound and not isinstance(each, Exception)}
    free = [each for each in places if each.kind in taken]
    reasons = {kind: _why_fixed(program, tried[kind], refused) for kind in tried.keys() - taken.keys()}
    together = _tried(network, call.cut(*taken)) if len(taken) > 1 else None
    return Sizes(
        free=tuple(tuple(each.dim for each in free if each.number == number) for number in range(len(call.tensors))),
        fixed=(
            *(
                [FixedSize(_names(program)[0], 0, 1, "torch.export fixes a batch of one")]
                if call.batch_size == 1
                else ()
            ),
            *(FixedSize(each.input, each.dim, each.size, reasons[each.kind]) for each in places if each not in free),
        ),
        limits=tuple(_limits(program, free)),
        others=(*taken.values(), *([together] if isinstance(together, tuple) else [])),
    )


def _places(program: torch.export.ExportedProgram, call: Call) -> Iterator[_Place]:
    """The dimensions that could have other sizes. torch.export fixes sizes of 0 and 1."""
    given = zip(call.tensors, _inputs(program), strict=True)
    for number, (tensor, node) in enumerate(given):
        for dim, symbol in enumerate(node.meta["val"].shape):
            if tensor.shape[dim] > 1:
                yield _Place(number, node.name, dim, tensor.shape[dim], str(symbol), call.kind(tensor, dim))


def _inputs(program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
    """The tensors that a program takes."""
    names = set(program.graph_signature.user_inputs)
    given = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    return [node for node in given if isinstance(node.meta.get("val"), torch.Tensor)]


def _names(program: torch.export.ExportedProgram) -> list[str]:
    return [node.name for node in _inputs(program)]


def _limits(program: torch.export.ExportedProgram, free: list[_Place]) -> Iterator[SizeLimit]:
    most = {str(symbol): str(each.upper) for symbol, each in program.range_constraints.items()}
    for each in free:
        if (limit := most.get(each.symbol, "")).isdigit():  # otherwise it is infinite
            yield SizeLimit(each.input, each.dim, int(limit))


def _tried(network: torch.nn.Module, call: Call) -> Tried:
    try:
        return call, call.of(network)
    except Exception as error:  # a network may refuse an input in any way
        return error


def _why_fixed(program: torch.export.ExportedProgram, tried: Tried, refused: str) -> str:
    """Why a size is not free: the network, torch.export, or a condition in the network's code."""
    if isinstance(tried, Exception):
        return f"the network takes no other size: {why(tried)}"
    if refused:
        return f"torch.export cannot leave sizes free: {refused}"
    found = _tried(program.module(), tried[0])  # the program raises the condition that other sizes do not meet
    asked = str(found).partition("\n")[0] if isinstance(found, Exception) else "it names no condition"
    return f"torch.export fixed it for the network's code: {asked}"
