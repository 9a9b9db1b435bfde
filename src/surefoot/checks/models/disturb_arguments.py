"""Changes one argument of a call at a time, on a copy, and compares the outputs bit by bit."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from torch import nn

from surefoot.checks.engine.attempts import attempt
from surefoot.checks.engine.rerun import Again, inner, other, redrawn
from surefoot.checks.engine.scene import Scene
from surefoot.checks.facts.models import IgnoredArgument
from surefoot.checks.models.networks_in_sight import words_of
from surefoot.randomness import kept

_FEWEST_WAYS = 2
"""An argument is ignored if at least this many other values were accepted and none changed an output."""
_LEFT_TO_THE_LOSS = {"label", "labels", "target", "targets", "tgt", "trg", "gt", "truth"}
"""Words for arguments that a model may leave to its loss, or read only in some of its steps."""
_FOR_THEIR_SIZE = {
    "id", "ids", "idx", "index", "indices", "length", "lengths", "lens", "len", "size", "shape", "unused", "info",
    "meta", "name", "names",
}  # fmt: skip
"""Words for arguments that may be taken for their size, or only be carried along."""
_REFUSALS = (RuntimeError, ValueError, IndexError, TypeError, KeyError, AssertionError, NotImplementedError)
"""What a model may raise if it is given unusual inputs."""


def ignored_arguments(scene: Scene, again: Again, name: str, *, of_loss: bool = False) -> list[IgnoredArgument]:
    """The arguments of a recorded call that no output depends on, neither in training nor in evaluation mode.

    The call must give the same outputs again and depend on at least one argument. An argument whose effect only zero
    weights hide is not ignored: weights are disturbed too. The copy of the model is of no use afterwards.
    """
    with scene.phases.deaf(), kept(), attempt(f"disturbing single arguments of {name}"):
        given = list(_named(again))
        wanted = [each for each in given if _may_matter(again.inputs[each[1]], each[0], of_loss=of_loss)]
        bases = _outputs(again) if wanted and len(given) > 1 else []
        if not bases or (of_loss and not any(bool(each.any()) for _, base in bases for each in base)):
            return []
        tried = [(argument, place, *_tried(again, place, bases)) for argument, place in wanted]
        others = (place for argument, place in given if (argument, place) not in wanted)
        if not any(each[2] for each in tried) and not any(_tried(again, place, bases)[0] for place in others):
            return []  # that all of them are ignored is another finding
        idle = [each for each in tried if not each[2] and each[3] >= _FEWEST_WAYS]
        if idle and _shake(again.model):
            bases = _outputs(again)
            idle = [each for each in idle if bases and not _tried(again, each[1], bases)[0]]
        return [IgnoredArgument(name, argument, tuple(again.inputs[n].shape), ways) for argument, n, _, ways in idle]
    return []


def _outputs(again: Again) -> list[tuple[bool, list[torch.Tensor]]]:
    """The outputs in evaluation and in training mode, if the call repeats them to the bit."""
    found = []
    for training in (False, True):
        with suppress(*_REFUSALS):
            first, second = again(training=training), again(training=training)
            if not first or not _same(first, second) or not all(bool(torch.isfinite(each).all()) for each in first):
                return []
            found.append((training, first))
    return found


def _named(again: Again) -> Iterator[tuple[str, int]]:
    """The tensors that are arguments themselves, with their names and their places among the inputs."""
    with suppress(TypeError, ValueError):
        forward = inner(again.call.model).forward
        signature, given_up = inspect.signature(forward), _deleted(forward)
        bound = signature.bind(*again.call.args, **again.call.kwargs).arguments
        for name, value in bound.items():
            kind = signature.parameters[name].kind
            named = kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            place = next((n for n, each in enumerate(again.inputs) if each is value), None)
            if named and place is not None and name not in given_up:
                yield name, place


def _deleted(forward: Callable[..., object]) -> set[str]:
    """The arguments that a forward deletes: it says itself that it does not use them."""
    code = getattr(forward, "__code__", None)
    return (
        set() if code is None else {each.argval for each in dis.get_instructions(code) if each.opname == "DELETE_FAST"}
    )


def _may_matter(value: torch.Tensor, name: str, *, of_loss: bool) -> bool:
    """Is this an argument with differing values that a model has no reason to ignore?"""
    exempt = _FOR_THEIR_SIZE if of_loss else _FOR_THEIR_SIZE | _LEFT_TO_THE_LOSS
    if name.startswith("_") or not words_of(name).isdisjoint(exempt) or value.is_complex():
        return False
    if value.layout != torch.strided:
        return False  # the graph of a graph network: which of its entries exist is not a value
    return value.numel() > 1 and bool((value != value.flatten()[0]).any())


def _tried(again: Again, place: int, bases: list[tuple[bool, list[torch.Tensor]]]) -> tuple[bool, int]:
    """Whether another value of an input changes an output, and how many values the call accepted."""
    accepted = 0
    for new in _other_values(again.inputs[place]):
        with suppress(*_REFUSALS):
            for training, base in bases:
                if not _same(base, again({place: new}, training=training)):
                    return True, accepted + 1
            accepted += 1
    return False, accepted


def _other_values(values: torch.Tensor) -> Iterator[torch.Tensor]:
    """Other values of the same kind, each different from those given."""
    if values.dtype == torch.bool:
        ways = [~values, values.roll(1, 0), torch.ones_like(values), torch.zeros_like(values)]
    elif values.is_floating_point():
        ways = [other(values, 11), -values, values.roll(1, 0), torch.zeros_like(values)]
    else:
        lowest, highest = int(values.min()), int(values.max())
        ways = [redrawn(values, values, 11), values.roll(1, 0), values.flip(0)]
        ways += [torch.full_like(values, lowest), torch.full_like(values, highest)]
    yield from (each for each in ways if not torch.equal(each, values))


def _same(before: list[torch.Tensor], after: list[torch.Tensor]) -> bool:
    return len(before) == len(after) and all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def _shake(model: nn.Module) -> bool:
    """Moves every weight a little, so that no gate is closed by a zero. Returns whether there are weights."""
    drawn = torch.Generator().manual_seed(17)
    weights = [each for each in model.parameters() if each.is_floating_point()]
    with torch.no_grad():
        for each in weights:
            noise = torch.randn(each.shape, generator=drawn, device="cpu").to(each.device, each.dtype)
            each.add_(noise * (0.05 + each.float().std(correction=0).to(each.dtype) / 2))
    return bool(weights)
