"""Records every call of a torch loss function: its inputs, its targets, and its weight in the backward."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from surefoot.checks.engine.autograd_graph import (
    Graph,
    made_by,
    operation,
    ranks,
    scales_cosines,
    squeezed,
    through_views,
    undropped,
    walk,
)
from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, digest, readable, tensors
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.engine.weak_set import WeakTensorSet
from surefoot.checks.evaluation.batch_averages import BatchAverages
from surefoot.checks.facts.losses import Loss, LossFacts
from surefoot.checks.facts.models import Crossing, ModelFacts
from surefoot.checks.loop.gradients import Gradients
from surefoot.checks.losses.argument_faults import argument, ctc_fault, kl_fault
from surefoot.checks.losses.gradient_signature import is_cut
from surefoot.checks.losses.noise_targets import NoiseTargets
from surefoot.checks.losses.targets import PICKING, Targets
from surefoot.checks.precision.coarse_numbers import CoarseNumbers
from surefoot.checks.samples.index_pairs import IndexPairs
from surefoot.checks.samples.pairs import Pairs
from surefoot.events.callers import caller, site
from surefoot.torch_inside.autograd import number, saved, signed
from surefoot.torch_inside.modes import aside

_CLASSES = {F.cross_entropy: "cross_entropy", F.nll_loss: "nll_loss"}
_BINARY = {
    F.binary_cross_entropy: "binary_cross_entropy",
    F.binary_cross_entropy_with_logits: "binary_cross_entropy_with_logits",
}
_DISTANCES = {
    F.mse_loss: "mse_loss", F.l1_loss: "l1_loss", F.smooth_l1_loss: "smooth_l1_loss", F.huber_loss: "huber_loss",
}  # fmt: skip
_OTHERS = {
    getattr(F, name): name
    for name in (
        "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss", "soft_margin_loss",
        "hinge_embedding_loss", "margin_ranking_loss", "gaussian_nll_loss", "poisson_nll_loss", "triplet_margin_loss",
        "triplet_margin_with_distance_loss", "cosine_embedding_loss",
    )
}  # fmt: skip
"""For these, only the result is read."""
LOSSES: dict[Any, str] = {**_OTHERS, **_CLASSES, **_BINARY, **_DISTANCES, F.kl_div: "kl_div", F.ctc_loss: "ctc_loss"}
_ARITHMETIC = {
    "sub", "__sub__", "rsub", "__rsub__", "mul", "__mul__", "add", "__add__", "__radd__", "__rmul__", "div",
    "__truediv__", "__rtruediv__", "true_divide", "maximum", "minimum", "where",
}  # fmt: skip
_DIVISIONS = {"div", "__truediv__", "true_divide"}
SOFTMAXES = {"softmax", "log_softmax"}


class Losses(Observer):
    """Records calls of loss functions, and handwritten losses that begin with an operator."""

    after = (Gradients,)
    before = (IndexPairs, Pairs, NoiseTargets, BatchAverages, CoarseNumbers)
    functions = PICKING | _ARITHMETIC | SOFTMAXES | {"mean", *(each.__name__ for each in LOSSES)}

    def __init__(
        self,
        scene: Scene,
        picks: IndexPairs,
        pairs: Pairs,
        noise: NoiseTargets,
        averages: BatchAverages,
        coarseness: CoarseNumbers,
    ) -> None:
        super().__init__(scene)
        self._averages, self._coarseness = averages, coarseness
        self._picks, self._pairs, self._noise = picks, pairs, noise
        self.losses: list[Loss] = []
        self.softmax_over: dict[str, tuple[int, tuple[int, ...]]] = {}
        """For each module: the dimension of a softmax, and the shape it ran over."""
        self.softmax_over_queries = self.softmax_of_samples = self.picked_across = ""
        self._alone: dict[str, bool] = {}
        """For each line: whether its softmax always ran over a single number."""
        self.targets = Targets(scene)
        self.unused: list[tuple[Loss, WeakTensorSet]] = []
        self.outputs: set[int] = set()
        """The graph numbers of what the last model returned, not counting views."""

    def graph_seen(self, graph: Graph) -> None:
        for loss in reversed(self.losses):
            if loss.backward >= 0:
                break
            loss.backward = self.scene.backwards

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """Passes a call on to whoever handles losses, indexing, arithmetic or softmax."""
        if function in LOSSES:
            if torch.is_grad_enabled() and isinstance(out, torch.Tensor) and out.requires_grad:
                if self.scene.close:
                    HOST.all_of([each for each in _compared(LOSSES[function], args, kwargs) if readable(each)])
                self._pairs.target(argument(args, kwargs, 1, "target"))
                if self.scene.close:
                    self._loss(LOSSES[function], args, kwargs, out)
            elif not torch.is_grad_enabled() and _reduction(args, kwargs) == "mean":
                self._averages.mean_taken()
            return
        name = getattr(function, "__name__", "")
        if name in PICKING and self.scene.close:
            self.targets.taken(name, args, kwargs, out)
            if name == "gather" and _picks_across(args, kwargs):
                self.picked_across = caller() or "the loss"
            if name == "__getitem__":
                self._picks.taken(args, out)
        if name == "mean" and not torch.is_grad_enabled() and isinstance(out, torch.Tensor) and not out.dim():
            self._averages.mean_taken()
        if name in _ARITHMETIC and len(args) >= 2:
            self._arithmetic(name, args, out)
        if name in SOFTMAXES and self.scene.close:
            self._softmax(args, kwargs, out)
        elif name in _DIVISIONS and self.scene.close and (dim := _divided_by_sum(args)) is not None:
            self._softmax((args[0], dim), {}, out)

    def _loss(self, name: str, args: Args, kwargs: Kwargs, out: torch.Tensor) -> None:
        given, target = _compared(name, args, kwargs)
        if name not in _OTHERS.values():
            self._picks.target(target)
            self._noise.target(target)
        reduction = _reduction(args, kwargs)
        shapes = tuple(given.shape), tuple(target.shape)
        loss = Loss(name, caller(), reduction, *shapes, self.scene.updates)
        loss.site, loss.fixed_target = site(), name not in _OTHERS.values() and not target.requires_grad
        loss.target_print = digest(target) if readable(target) else 0
        made = squeezed(undropped(given.grad_fn))
        loss.above = loss.logits_from = operation(made)
        while loss.logits_from in ("LogSoftmax", "Log") or (loss.logits_from == "Softmax" and loss.above == "Log"):
            made = made_by(made)
            loss.logits_from = operation(made)
        if name in _CLASSES.values():
            self._classes(loss, given, target, kwargs, out)
        elif name not in _OTHERS.values() and readable(given) and readable(target):
            self._numbers(loss, given, target, args, kwargs)
        loss.ranks = loss.constant is not None and ranks(given, classes=loss.classes)
        if out.dim() == 0 and readable(out):
            HOST.later(out, lambda value: setattr(loss, "value", float(value)))
            if self.scene.updates < 3:
                self.unused.append((loss, WeakTensorSet(walk([out]).leaves)))
        if readable(out):
            out.register_hook(functools.partial(self.scene.failsafe.callback(self._weigh), loss))
        self.losses.append(loss)
        if not self.scene.phases.in_model():
            self._pairs.target_prints.add(loss.target_print)

    def _is_output(self, given: torch.Tensor) -> bool:
        """Did a model return this tensor, or is it a view of what a model returned?"""
        node = through_views(given.grad_fn)
        return node is not None and number(node) in self.outputs

    def model_returned(self, model: nn.Module, args: Any, kwargs: Kwargs, output: Any) -> None:
        nodes = (through_views(each.grad_fn) for each in tensors(output) if each.requires_grad)
        self.outputs = {number(node) for node in nodes if node is not None}

    def _weigh(self, loss: Loss, gradient: torch.Tensor) -> None:
        HOST.later(gradient, functools.partial(_note_weight, loss))

    def _classes(
        self, loss: Loss, given: torch.Tensor, target: torch.Tensor, kwargs: Kwargs, out: torch.Tensor
    ) -> None:
        dim = 1 if given.dim() > 1 else 0
        loss.classes = given.shape[dim]
        if not readable(given) or not readable(target):
            return
        with aside():
            given_values, target = HOST.all_of((given, target))
            values = given_values.float()
            least, most = map(float, values.aminmax()) if values.numel() else (-math.inf, math.inf)
            loss.cut, loss.cosines = least >= 0 and is_cut(values), scales_cosines(given)
            if loss.classes > 1 and most < math.inf:
                loss.probabilities = least >= -1e-4 and _sums_to_one(values, dim)
                near = 1e-2 if given.dtype in (torch.float32, torch.float64) else 0.1
                loss.log_probabilities = most < near and bool((values.logsumexp(dim) < near).all())
            if target.is_floating_point():
                loss.turned_target = _turned(target, dim)
                loss.targets = loss.valid = target.shape[0]
                loss.constant = _constant_shares(target, dim)
                return
            ignored = kwargs.get("ignore_index", -100)
            valid = target[target != ignored]
            loss.targets, loss.valid = target.numel(), valid.numel()
            distinct = valid.unique()
            loss.distinct = distinct.numel()
            loss.constant = float(distinct[0]) if loss.distinct == 1 else None
            if target.dim() == 1 and not self.scene.phases.in_model() and loss.classes <= 4096:
                loss.counts = tuple(torch.bincount(valid.clamp(min=0), minlength=loss.classes).tolist())
            self.targets.asked(loss, target, kwargs, out)

    def _numbers(self, loss: Loss, given: torch.Tensor, target: torch.Tensor, args: Args, kwargs: Kwargs) -> None:
        loss.targets = loss.valid = target.numel()
        with aside():
            given_values, target = HOST.all_of((given, target))
            values = given_values.float()
            if loss.function == "kl_div":
                summed = [dim for dim in range(values.dim()) if bool((values.logsumexp(dim).abs() < 5e-2).all())]
                loss.log_probabilities = bool(values.max() <= 1e-3)  # they may be binary, or masked
                loss.turned_target = len(summed) == 1 and _turned(target, summed[0])
                loss.layout_fault = kl_fault(given_values, target, bool(argument(args, kwargs, 5, "log_target")))
            elif loss.function == "ctc_loss":
                loss.log_probabilities = bool((values.logsumexp(-1).abs() < 1e-2).all())
                loss.layout_fault = ctc_fault(loss, values, args, kwargs)
                loss.constant = _constant(target)
            else:
                loss.constant = _constant(target)
                loss.distinct = 2 if loss.constant is None else 1
                loss.of_outputs = self._is_output(given)
                loss.cut = loss.function in _BINARY.values() and is_cut(values)
                if loss.function in _BINARY.values() and _class_numbers(target) in (1, 2):
                    loss.counts = tuple(torch.bincount(target.flatten().long(), minlength=2).tolist())
                loss.broadcast = _broadcast(given, target)
                loss.class_numbers = _class_numbers(target) if loss.function in _DISTANCES.values() else 0

    def _arithmetic(self, name: str, args: Args, out: object) -> None:
        first, second = args[0], args[1]
        if not (isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor) and isinstance(out, torch.Tensor)):
            return
        if self.scene.phases.in_model() or not torch.is_grad_enabled() or first.requires_grad == second.requires_grad:
            return
        if not self.scene.close:
            return
        graded, other = (first, second) if first.requires_grad else (second, first)
        spread = _broadcast(first, second)
        if spread and first.dim() != second.dim() and first.numel() == second.numel() and first.dim() and second.dim():
            self._difference(name, graded, other).broadcast = spread
        elif "sub" in name and first.shape == second.shape and self._is_output(graded) and readable(other):
            self._picks.target(other)
            self._pairs.target(other)
            self._noise.target(other)
            loss = self._difference(name, graded, other)
            loss.of_outputs, loss.valid = True, other.numel()
            with aside():
                values = HOST.of(other)
                loss.constant, loss.class_numbers = _constant(values), _class_numbers(values)
        elif "sub" in name and first.shape == second.shape and not other.is_floating_point() and readable(other):
            with aside():
                numbers = _class_numbers(HOST.of(other))
            if numbers:
                self._difference(name, graded, other).class_numbers = numbers

    def _difference(self, name: str, graded: torch.Tensor, other: torch.Tensor) -> Loss:
        """A loss that begins with an operator between a tensor with a gradient and one without."""
        shapes = tuple(graded.shape), tuple(other.shape)
        self.losses.append(Loss(name.strip("_"), caller(), "none", *shapes, self.scene.updates))
        return self.losses[-1]

    def _softmax(self, args: Args, kwargs: Kwargs, out: Any) -> None:
        given: Any = args[0] if args else kwargs.get("input")
        if not isinstance(out, torch.Tensor) or not readable(out) or not readable(given):
            return
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if dim is None:
            dim = 0 if out.dim() in (1, 3) else 1  # torch's own choice, with a warning
        module = self.scene.phases.module() or "the model"
        if isinstance(dim, int) and out.dim() >= 2 and dim % out.dim() == 0 and self.scene.phases.in_model():
            self.softmax_over[module] = 0, tuple(out.shape)
        if (
            isinstance(dim, int)
            and out.dim() >= 3
            and dim % out.dim() == out.dim() - 2
            and out.shape[-1] == out.shape[-2]
        ):
            self.softmax_over_queries = module
        if isinstance(dim, int) and out.dim() >= 2 and out.requires_grad:
            where = caller() or module
            self._alone[where] = out.shape[dim] == 1 and self._alone.get(where, True)
            outside = not self.scene.phases.in_model() and out.dim() == 2 and out.shape[0] != out.shape[1] > 1
            if outside and dim % 2 == 0 and self._is_output(given):
                self.softmax_of_samples = caller() or "the loss"
        with aside():
            if bool(out.isnan().any()) and not bool(given.isnan().any()):
                self._coarseness.overflowed(given.dtype, float("-inf"))

    def facts(self) -> Iterator[LossFacts | ModelFacts]:
        yield LossFacts(losses=tuple(self.losses))
        yield ModelFacts(crossings=tuple(self._misdirected()))

    def _misdirected(self) -> Iterator[Crossing]:
        """Softmaxes of predictions over samples, and softmaxes that always ran over a single number."""
        if self.softmax_of_samples:
            yield Crossing("samples", self.softmax_of_samples, "the first dimension of what a model returned")
        if self.picked_across:
            yield Crossing("samples", self.picked_across, "another dimension than the one whose members are picked")
        for where, alone in self._alone.items():
            if alone:
                yield Crossing("alone", where, "a dimension of size 1")


def _note_weight(loss: Loss, gradient: torch.Tensor) -> None:
    """Records the weight of a loss in the backward. An unreduced loss needs equal or all positive weights."""
    counted = gradient[gradient != 0]
    alike = bool(counted.numel()) and bool((counted == counted[0]).all() | (counted > 0).all())
    if gradient.dim() == 0 or alike:
        loss.weights.append(float(counted[0] if gradient.dim() else gradient))


def _picks_across(args: Args, kwargs: Kwargs) -> bool:
    """Is one element of each row picked from a softmax that ran over another dimension?"""
    given, (dim, index) = args[0], (argument(args, kwargs, 1, "dim"), argument(args, kwargs, 2, "index"))
    over = saved(given.grad_fn, "dim")
    if operation(given.grad_fn) not in ("Softmax", "LogSoftmax") or not isinstance(dim, int) or over is None:
        return False
    return index.shape[dim] == 1 < given.shape[dim] and (signed(over) - dim) % given.dim() != 0


def _divided_by_sum(args: Args) -> int | None:
    """The dimension of a handwritten softmax, exp(x) / exp(x).sum(dim); None for any other division."""
    first, second = (getattr(each, "grad_fn", None) for each in args[:2]) if len(args) > 1 else (None, None)
    node = through_views(second)
    if operation(first) != "Exp" or operation(node) != "Sum" or node.next_functions[0][0] is not first:
        return None
    dims = saved(node, "dim")
    if not dims or len(dims) != 1:
        return None
    return signed(dims[0])


def _compared(name: str, args: Args, kwargs: Kwargs) -> tuple[Any, Any]:
    """A prediction and its target."""
    if name in _OTHERS.values():
        first, second, *_ = tensors((args, kwargs))
        return first, second
    names = ("log_probs", "targets") if name == "ctc_loss" else ("input", "target")
    return argument(args, kwargs, 0, names[0]), argument(args, kwargs, 1, names[1])


def _reduction(args: Args, kwargs: Kwargs) -> str:
    return str(kwargs.get("reduction", "mean" if len(args) < 7 else args[6]))


def _sums_to_one(values: torch.Tensor, dim: int) -> bool:
    inside = (values >= -1e-4).all() & (values <= 1 + 1e-4).all()
    return bool(inside & ((values.sum(dim) - 1).abs() < 1e-2).all())


def _broadcast(first: torch.Tensor, second: torch.Tensor) -> tuple[int, ...]:
    """The shape after broadcasting two tensors, if it has more elements than either."""
    if first.shape == second.shape:
        return ()
    spread = torch.broadcast_shapes(first.shape, second.shape)
    return tuple(spread) if spread.numel() > max(first.numel(), second.numel()) else ()


def _constant(target: torch.Tensor) -> float | None:
    """The number that fills the whole target; None if there is more than one."""
    flat = target.flatten()
    return float(flat[0]) if flat.numel() and bool((flat == flat[0]).all()) else None


def _constant_shares(target: torch.Tensor, dim: int) -> float | None:
    """The class that has all of the target's probability; None if there is more than one."""
    chosen = target.argmax(dim).flatten()
    whole = bool((target.amax(dim) == 1).all()) and bool((chosen == chosen[0]).all())
    return float(chosen[0]) if whole else None


def _class_numbers(target: torch.Tensor) -> int:
    """The number of classes, if targets are one whole number per sample, counted from 0; otherwise 0."""
    if target.numel() != target.shape[:1].numel() or target.numel() < 4 or target.numel() > 1 << 16:
        return 0
    whole = bool((target == target.round()).all() & (target >= 0).all() & (target < 1000).all())
    return int(target.max()) + 1 if whole else 0


def _turned(target: torch.Tensor, dim: int) -> bool:
    """Do the probabilities sum to 1 over another dimension, but not over this one?"""
    others = [other for other in range(target.dim()) if other != dim]
    return not _sums_to_one(target, dim) and any(_sums_to_one(target, other) for other in others)
