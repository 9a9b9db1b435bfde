"""Finds loss terms that were made from parameters and have lost their gradient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from surefoot.checks.engine.autograd_graph import VIEWS, Graph, hangs_on, operation
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable, tensors
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.engine.weak_notes import WeakNotes
from surefoot.checks.facts.losses import LossFacts, Term
from surefoot.checks.loop.gradients import Gradients
from surefoot.events.callers import caller
from surefoot.torch_inside.autograd import factors_of
from surefoot.torch_inside.modes import aside

_SUMS = {"add", "add_", "__add__", "__iadd__", "__radd__", "sub", "sub_", "__sub__", "__isub__", "__rsub__", "rsub"}
_READS = {"item", "__float__", "tolist", "numpy", "__array__"}
_KEEPS_TERMS = {"Add", "Sub", "Mul", "Div", "Neg", "Sum", "Mean", "Rsub", "Stack", "Dot", *VIEWS}
"""A term stays a term through these operations."""
_FLAT = {"round", "floor", "ceil", "trunc", "sign", "sgn", "heaviside", "round_", "floor_", "ceil_", "sign_"}
"""Their results have a graph, but their gradient is always zero."""
_FLAT_NOTE = "surefoot flat"
_FEWEST_FLAT = 3
"""A line rounds its loss in at least this many backwards."""
_MAKES = {"tensor", "as_tensor"}
_LARGEST = {"max", "amax", "maximum"}
"""A maximum that is subtracted before an exponential and added after the logarithm is not a loss term."""
_NOTE = "surefoot term"
_NOTE_OF_ROWS = "surefoot term of each sample"


class LossTerms(Observer):
    """Finds numbers that are added to a loss outside its graph."""

    after = (Gradients,)
    reads = True
    waits = True

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.terms: list[Term] = []
        self._cut: WeakNotes[str] = WeakNotes()
        """Tensors without a gradient that were computed from tensors with one, and the function that cut them off."""
        self.flat: Counter[str] = Counter()
        """Lines of the loss that round before backward, and in how many backwards."""
        self._read = ""
        """The function by which the loop read a number from a tensor with a gradient, or from one that was cut off."""

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Follows tensors that lose their gradient, and sums that include them."""
        if not self.scene.close:
            return
        name = getattr(function, "__name__", "")
        if isinstance(out, torch.Tensor) and out.requires_grad:
            if self.scene.phases.in_model():
                return
            if name in _FLAT and out.grad_fn is not None:
                _note(out, _FLAT_NOTE, caller())
            if name in _SUMS and out.dim() == 0 and len(args) >= 2:
                self._added(args[0], args[1], out)
            elif name in _SUMS and out.dim() == 1 and len(args) >= 2 and "sub" not in name:
                self._added_by_sample(args[0], args[1], out)
            elif name == "stack" and out.dim() == 1 and args:
                self._stacked(args[0], out)
        elif name in _MAKES and self._read and isinstance(args[0] if args else None, float):
            self._cut[out] = self._read
        elif (name in _READS or any(True for _ in tensors(out))) and (cut := self._cut_by(args, name)):
            self._read = cut if name in _READS else self._read
            if name not in _LARGEST:
                self._cut.put(tensors(out), cut)

    def _cut_by(self, args: object, name: str) -> str:
        """The function that cut the graph: this one, or an earlier one; empty if there was no graph."""
        for each in tensors(args):
            if (earlier := self._cut.get(each)) is not None:
                return earlier
            if self._is_learned(each):
                return name
        return ""

    def _is_learned(self, tensor: torch.Tensor) -> bool:
        """Does it depend on a trained parameter? Outputs of a teacher or a reference are constants."""
        return tensor.requires_grad and hangs_on(tensor, self.scene.trained)

    def _added(self, first: Any, second: Any, out: torch.Tensor) -> None:
        """If a term without a gradient is added to a number with one, notes the term in the graph."""
        graded, other = (first, second) if getattr(first, "requires_grad", False) else (second, first)
        if isinstance(other, torch.Tensor):
            lost = not other.requires_grad and readable(other) and other.numel() == 1 and other in self._cut
        else:
            lost = isinstance(other, float) and bool(self._read)
        if lost and isinstance(graded, torch.Tensor) and out.grad_fn is not None:
            with aside():
                value, beside = float(other), float(out) - float(other)
            if beside and abs(beside) != abs(value):  # otherwise it replaces the other number
                cut = self._cut.get(other) if isinstance(other, torch.Tensor) else self._read
                _note(out, _NOTE, (caller(), value, cut or ""))

    def _added_by_sample(self, first: Any, second: Any, out: torch.Tensor) -> None:
        """The same for one number per sample, if the loss is their mean or sum.

        Differences are skipped: a ratio of probabilities rightly contains the older one without a gradient.
        """
        both = isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor)
        if not both or first.shape != second.shape or first.requires_grad == second.requires_grad:
            return
        other = second if first.requires_grad else first
        if other in self._cut and readable(other) and out.grad_fn is not None:
            with aside():
                _note(out, _NOTE_OF_ROWS, (caller(), float(other.float().mean()), self._cut.get(other) or ""))

    def _stacked(self, parts: Any, out: torch.Tensor) -> None:
        """If terms are stacked to be summed, notes those without a gradient."""
        for part in parts if isinstance(parts, list | tuple) else ():
            if isinstance(part, torch.Tensor) and not part.requires_grad and readable(part) and part in self._cut:
                with aside():
                    _note(out, _NOTE, (caller(), float(part), self._cut.get(part) or ""))

    def graph_seen(self, graph: Graph) -> None:
        if not self.scene.close:
            return
        self.flat.update({node.metadata[_FLAT_NOTE] for node in graph.flat if _FLAT_NOTE in node.metadata})
        waiting, seen, weighed = list(graph.roots), set(graph.roots), set()
        while waiting:
            node = waiting.pop()
            if _NOTE in node.metadata:
                self.terms.append(Term(*node.metadata[_NOTE]))
            if _NOTE_OF_ROWS in node.metadata and node not in weighed:
                self.terms.append(Term(*node.metadata[_NOTE_OF_ROWS]))
            if operation(node) in _KEEPS_TERMS:
                above = {each for each, _ in node.next_functions if each is not None} - seen
                seen |= above
                waiting += above
                if node in weighed or _weighs(node):
                    weighed |= above

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        self._cut = WeakNotes()

    def facts(self) -> Iterator[LossFacts]:
        flat = (line for line, count in self.flat.items() if count >= _FEWEST_FLAT)
        yield LossFacts(terms=tuple(self.terms), flat_lines=tuple(flat))


def _weighs(node: Any) -> bool:
    """Is this a product with more than one number, such as advantages?"""
    return operation(node) in ("Mul", "Div") and any(each.numel() > 1 for each in factors_of(node))


def _note(tensor: torch.Tensor, name: str, value: Any) -> None:
    """Stores a note at the graph node of a tensor."""
    node: Any = tensor.grad_fn
    node.metadata[name] = value
