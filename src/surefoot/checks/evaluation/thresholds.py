"""Records how an evaluation turns scores into decisions: thresholds, rounding, argmax."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from types import CodeType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from surefoot.checks.engine.autograd_graph import through_views
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable, tensors
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.facts.evaluation import EvaluationFacts, Threshold
from surefoot.checks.loop.forwards import Forwards
from surefoot.events.callers import caller, near_frames, user_lines
from surefoot.source.cutoffs import cut_at_half, predictions_cut_at_half
from surefoot.source.frames import variables
from surefoot.torch_inside.autograd import number
from surefoot.torch_inside.modes import aside

_COMPARISONS = {"gt", "__gt__", "ge", "__ge__", "lt", "__lt__", "le", "__le__", "greater", "less"}
_LEAVING = {"numpy", "__array__", "tolist", "item"}
_SQUASHING = {"sigmoid", "softmax", "log_softmax"}
_ROUNDING = {"round", "round_"}
_LARGEST = {"argmax", "max"}
_LOSSES = {"binary_cross_entropy_with_logits", "binary_cross_entropy", "cross_entropy", "nll_loss", "ctc_loss"}
_MOST = 8
_MOST_CLASSES = 3
"""More distinct class counts than this are lengths of texts."""


class Thresholds(Observer):
    """Checks that 0.5 is a threshold of probabilities, and that argmax runs over classes."""

    after = (Forwards,)
    functions = _COMPARISONS | _LEAVING | _SQUASHING | _ROUNDING | _LARGEST | _LOSSES
    waits = True

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.thresholds: dict[str, Threshold] = {}
        self._places: dict[int, int] = {}
        """The index among a model's outputs, by the number of the node that made each."""
        self._taken_for: dict[str, set[int]] = {"logits": set(), "probabilities": set()}
        """Indices of outputs that a binary cross-entropy takes as one or the other."""
        self._classes: set[int] = set()
        """The numbers of classes that losses distinguish."""
        self._evaluated: list[tuple[int, weakref.ref[torch.Tensor]]] = []
        self._squashed: list[tuple[str, weakref.ref[torch.Tensor]]] = []
        """What was made of the last output: `probabilities`, `squashed twice`, `competing` labels or `shares`."""
        self._left: set[tuple[str, int]] = set()
        """Lines on which logits left torch and that were already examined."""
        self._asked, self._metric = 0, ""
        """How often a framework's metric function was looked for, and its line that compares predictions with 0.5."""

    def model_returned(self, model: nn.Module, args: Any, kwargs: Kwargs, output: Any) -> None:
        floating = [each for each in tensors(output) if each.is_floating_point()]
        if torch.is_grad_enabled():
            made = [(n, through_views(each.grad_fn)) for n, each in enumerate(floating)]
            self._places = {number(node): n for n, node in made if node is not None}
        else:
            self._evaluated = [(n, weakref.ref(each)) for n, each in enumerate(floating)]
            self._squashed = []
            self._measured([each for each in floating if each.dim() and each.numel() and readable(each)])

    def _measured(self, scores: list[torch.Tensor]) -> None:
        """A framework may evaluate, and pass all scores to the user's metric function outside torch."""
        if self._asked < _MOST and not self._metric:
            self._asked, self._metric = self._asked + 1, _cut_in_metrics()
        if self._metric and self._metric not in self.thresholds and scores:
            with aside():
                lowest, highest = float(scores[0].min()), float(scores[0].max())
            if lowest < 0 or highest > 1:
                self.thresholds[self._metric] = Threshold(self._metric, lowest, highest, "")

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """Records how losses and evaluations use scores."""
        if torch.is_grad_enabled():
            if self.scene.close and args:
                self._trained(function, args)
        elif not self.scene.phases.in_model() and len(self.thresholds) < _MOST and args and readable(args[0]):
            self._used(getattr(function, "__name__", ""), args, kwargs, out)

    def _trained(self, function: Function, args: Args) -> None:
        """Records how a loss interprets its input."""
        if function is F.binary_cross_entropy_with_logits or function is F.binary_cross_entropy:
            node = through_views(args[0].grad_fn)
            kind = "probabilities" if function is F.binary_cross_entropy else "logits"
            if node is not None and number(node) in self._places:
                self._taken_for[kind].add(self._places[number(node)])
        elif function in (F.cross_entropy, F.nll_loss) and args[0].dim() > 1:
            self._classes.add(args[0].shape[1])
        elif function is F.ctc_loss:
            self._classes.add(args[0].shape[-1])

    def _used(self, name: str, args: Args, kwargs: Kwargs, out: object) -> None:
        """Checks a function on scores outside models, without gradients."""
        given = args[0]
        if name in _COMPARISONS:
            self._compared(args)
        elif not given.is_floating_point() or not given.numel():
            return
        elif name in _SQUASHING:
            self._squash(name, given, out)
        elif name in _ROUNDING:
            self._rounded(given)
        elif name in _LARGEST:
            self._sought(name, given, kwargs.get("dim", args[1] if len(args) > 1 else None))
        elif name in _LEAVING and self._is("logits", given):
            self._leaves(given)

    def _squash(self, name: str, given: torch.Tensor, out: Any) -> None:
        if self._is("probabilities", given) or self._was_made("probabilities", given):
            self._squashed.append(("squashed twice", weakref.ref(out)))
        elif name == "sigmoid" and self._is("logits", given):
            self._squashed.append(("probabilities", weakref.ref(out)))
        elif self._is("logits", given):
            self._squashed.append(("competing", weakref.ref(out)))
        elif self._is_output(given):
            self._squashed.append(("shares", weakref.ref(out)))

    def _compared(self, args: Args) -> None:
        numbers = [each for each in args if isinstance(each, int | float)]
        compared = [each for each in args if readable(each) and each.is_floating_point() and each.numel()]
        if not numbers or not compared:
            return
        if numbers[0] == 0.5:
            self._cut_at_half(compared[0])
        elif numbers[0] == 0 and (
            self._is("probabilities", compared[0]) or self._was_made("probabilities", compared[0])
        ):
            self._note("probabilities are compared with 0, and all of them are above it", compared[0])

    def _cut_at_half(self, compared: torch.Tensor) -> None:
        with aside():
            lowest, highest = float(compared.min()), float(compared.max())
        if lowest < 0 or highest > 1 or self._is("logits", compared):
            self._note("", compared)
        elif self._was_made("squashed twice", compared):
            self._note("probabilities go through a second sigmoid and are compared with 0.5", compared)
        elif self._was_made("competing", compared):
            self._note("independent labels share one softmax and are compared with 0.5", compared)

    def _rounded(self, given: torch.Tensor) -> None:
        if self._is("logits", given):
            self._note("", given)
        elif self._was_made("squashed twice", given):
            self._note("probabilities go through a second sigmoid and are rounded", given)

    def _sought(self, name: str, given: torch.Tensor, dim: Any) -> None:
        """Checks whether an argmax runs over classes."""
        squashed = any(each() is not None and _shares(each(), given) for _, each in self._squashed)
        if not (squashed or self._is_output(given)) or not (dim is None or isinstance(dim, int)):
            return
        sizes = list(given.shape)
        if dim is not None and sizes[dim] == 1 and (name == "argmax" or self._is("logits", given)):
            self._note(f"the largest is taken of a single number: scores {sizes}, dimension {dim}", given)
        elif 0 < len(self._classes) <= _MOST_CLASSES and self._classes.intersection(sizes) and len(sizes) > 1:
            whole = dim is None and name == "argmax" and sizes[0] > 1
            if whole or (dim is not None and sizes[dim] not in self._classes and self._is_first(given, dim)):
                among = "over all of them" if dim is None else f"over dimension {dim}"
                self._note(f"the largest of the scores {sizes} is taken {among}, not over the classes", given)

    def _is_first(self, given: torch.Tensor, dim: int) -> bool:
        """Are the classes in another dimension, and is this not a list of candidates for each class?"""
        return given.dim() > 2 or dim % given.dim() == 0

    def _leaves(self, given: torch.Tensor) -> None:
        lines = user_lines(1)
        if lines and lines[0] not in self._left and len(self._left) < _MOST:
            self._left.add(lines[0])
            if cut_at_half(*lines[0]):
                self._note("", given)

    def _note(self, seen: str, values: torch.Tensor) -> None:
        with aside():
            lowest, highest = float(values.min()), float(values.max())
        self.thresholds.setdefault(caller(), Threshold(caller(), lowest, highest, seen))

    def _is_output(self, tensor: torch.Tensor) -> bool:
        return any(_shares(ref(), tensor) for _, ref in self._evaluated)

    def _is(self, kind: str, tensor: torch.Tensor) -> bool:
        """Is this an output, or a view of one, that training interprets this way?"""
        return any(_shares(ref(), tensor) for n, ref in self._evaluated if n in self._taken_for[kind])

    def _was_made(self, kind: str, tensor: torch.Tensor) -> bool:
        return any(_shares(ref(), tensor) for made, ref in self._squashed if made == kind)

    def facts(self) -> Iterator[EvaluationFacts]:
        yield EvaluationFacts(thresholds=tuple(self.thresholds.values()))


def _cut_in_metrics() -> str:
    """The line that compares all predictions with 0.5 in `compute_metrics` of a running trainer."""
    for frame in near_frames():
        trainer = variables(frame).get("self") if frame.f_code.co_varnames[:1] == ("self",) else None
        code = getattr(getattr(trainer, "compute_metrics", None), "__code__", None)
        if isinstance(code, CodeType) and getattr(trainer, "preprocess_logits_for_metrics", None) is None:
            line = predictions_cut_at_half(code.co_filename, code.co_firstlineno)
            return f"{code.co_filename}:{line}" if line else ""
    return ""


def _shares(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    """Is one a view of the other?"""
    if one is None or not readable(one):
        return False
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
