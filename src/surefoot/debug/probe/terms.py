"""Terms: the numbers that a loss is the sum of, and the gradient that each of them gives to each module."""

from __future__ import annotations

import os
import re
import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import GradientEdge

from surefoot.debug.probe.order import Order, Term
from surefoot.errors import first_line
from surefoot.randomness import kept
from surefoot.source.owners import is_users

MOST = 12
"""Terms of a loss that are measured."""
MOMENTS = (1, 20, 100)
"""Updates before those in which terms are measured; so are those of the last update."""
OUTSIDE = "parameters outside of modules"
ROUNDING = 1e-6
"""The share of a gradient below which a difference of two is rounding."""
_SUMS = ("AddBackward", "SubBackward")
_SAME = ("MulBackward", "DivBackward", "NegBackward", "ToCopyBackward", "SqueezeBackward", "ViewBackward")
"""Operations on one number that leave it the same term, if only one of their inputs has a gradient."""
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in [^\n]*(?:\n\s*(.*))?')
_ASSIGNED = re.compile(r"([A-Za-z_][\w.]*)\s*(?::[^=]+)?[+\-*/]?=[^=]")


class Terms:
    """Measures the terms of the loss in a few updates of a run."""

    def __init__(self, order: Order) -> None:
        self.found: list[Term] = []
        self.refused = ""
        self._moments = {*MOMENTS, order.updates - 1} if order.measures_terms else set()
        self._models: list[weakref.ref[nn.Module]] = []
        self._others: dict[int, torch.Tensor] = {}
        self._asked = False

    def called(self, model: nn.Module) -> None:
        """A model is called in training."""
        if self._moments and all(each() is not model for each in self._models):
            self._models.append(weakref.ref(model))

    def update_ends(self, updates: int, optimizer: torch.optim.Optimizer) -> None:
        """Makes autograd keep the lines of the operations of the next update, if its terms are wanted."""
        self._asked = updates in self._moments and not self.refused
        if self._moments:
            torch.autograd.set_detect_anomaly(self._asked, check_nan=False)
            self._others.update((id(each), each) for group in optimizer.param_groups for each in group["params"])

    def losses(self, losses: Sequence[torch.Tensor], updates: int) -> None:
        """A backward begins: measures its terms, if it is the first one of an update in which they are wanted."""
        if not self._asked or len(losses) != 1 or losses[0].numel() != 1 or losses[0].grad_fn is None:
            return
        self._asked = False
        torch.autograd.set_detect_anomaly(False)
        try:
            with kept():
                self.found += _measured(losses[0], self._parameters(), updates)
        except Exception as error:
            self.refused = first_line(error)

    def _parameters(self) -> dict[str, list[torch.Tensor]]:
        """The trained parameters of each part of the model; of each model, if there are several."""
        models = [model for each in self._models if (model := each()) is not None]
        found: dict[str, list[torch.Tensor]] = defaultdict(list)
        seen: set[int] = set()
        for number, model in enumerate(models):
            whole = f"{type(model).__name__} {number + 1}" if len(models) > 1 else ""
            for name, each in model.named_parameters():
                if each.requires_grad and id(each) not in seen:
                    seen.add(id(each))
                    found[whole or name.partition(".")[0]].append(each)
        outside = [each for key, each in self._others.items() if key not in seen and each.requires_grad]
        return {**found, **({OUTSIDE: outside} if outside else {})}


def _measured(loss: torch.Tensor, modules: dict[str, list[torch.Tensor]], updates: int) -> Iterator[Term]:
    """Each term, with the gradient that it gives: its factors in the loss are part of it."""
    edges = list(_terms(GradientEdge(loss.grad_fn, loss.output_nr)))[:MOST]  # type: ignore[arg-type]
    arriving = torch.autograd.grad(loss, edges, retain_graph=True, allow_unused=True)
    owners = [(name, each) for name, group in modules.items() for each in group]
    parameters = [each for _, each in owners]
    whole = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    for edge, seed in zip(edges, arriving, strict=True):
        own = _gradient(edge, seed, parameters)  # of one term at a time: each is as large as the model
        squares: dict[str, float] = defaultdict(float)
        for (name, _), each in zip(owners, own, strict=True):
            squares[name] += 0.0 if each is None else float(each.double().square().sum())
        name, where = _place(edge)
        yield Term(
            name=name,
            where=where,
            update=updates + 1,
            length=sum(squares.values()) ** 0.5,
            modules={name: square**0.5 for name, square in squares.items()},
            along=_cosine(own, whole) if len(edges) > 1 else None,
        )


def _gradient(edge: GradientEdge, seed: torch.Tensor | None, parameters: list[torch.Tensor]) -> list[Any]:
    if seed is None:
        return [None] * len(parameters)
    return list(torch.autograd.grad([edge], parameters, [seed], retain_graph=True, allow_unused=True))


def _terms(edge: GradientEdge) -> Iterator[GradientEdge]:
    """The numbers that are added up to one, itself if it is no sum."""
    node = edge.node
    inputs = [GradientEdge(each, number) for each, number in node.next_functions if each is not None]
    name = node.name()
    if name.startswith(_SUMS) and inputs:
        for each in inputs:
            yield from _terms(each)
    elif name.startswith(("SumBackward", "MeanBackward")) and inputs[0].node.name().startswith("StackBackward"):
        stacked = inputs[0].node.next_functions
        yield from (GradientEdge(each, number) for each, number in stacked if each is not None)
    elif name.startswith(_SAME) and len(inputs) == 1 and len(inner := list(_terms(inputs[0]))) > 1:
        yield from inner
    else:
        yield edge


def _cosine(own: Sequence[Any], whole: Sequence[Any]) -> float | None:
    """The cosine between a term's gradient and the rest of the whole; None if one of them is next to nothing."""
    product = first = second = third = 0.0
    for each, all_terms in zip(own, whole, strict=True):
        if all_terms is None:
            continue
        total = all_terms.double()
        mine = torch.zeros_like(total) if each is None else each.double()
        rest = total - mine
        first, second = first + float(mine.square().sum()), second + float(rest.square().sum())
        third, product = third + float(total.square().sum()), product + float((mine * rest).sum())
    least = ROUNDING**2 * max(first, third)
    return product / (first * second) ** 0.5 if first > least and second > least else None


def _place(edge: GradientEdge) -> tuple[str, str]:
    """What a term is called where it was made, and that line: of the term itself, without its factor."""
    node = edge.node
    while node.name().startswith(_SAME):
        inputs = [each for each, _ in node.next_functions if each is not None]
        if len(inputs) != 1 or "AccumulateGrad" in inputs[0].name():
            break
        node = inputs[0]
    metadata: Any = node.metadata
    frames = [found.groups() for each in metadata.get("traceback_", ()) if (found := _FRAME.search(each))]
    users = [frame for frame in frames if not frame[0].startswith("<") and is_users(os.path.abspath(frame[0]))]
    if not users:
        return node.name(), ""
    file, line, text = users[-1]
    named = _ASSIGNED.match(text or "")
    return named[1] if named else f"line {line}", f"{os.path.abspath(file)}:{line}"
