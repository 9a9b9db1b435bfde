"""Follows gradients from backward to update: who clears them, who uses them, what they move."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.autograd_graph import Graph, unscaled
from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, fingerprints, held, readable
from surefoot.checks.engine.weak_notes import WeakNotes
from surefoot.checks.engine.weak_set import WeakTensorSet
from surefoot.checks.facts.gradients import Discard, GradientFacts
from surefoot.checks.facts.loop import LoopFacts, Update
from surefoot.checks.loop.backwards import Backwards
from surefoot.checks.loop.forwards import Forwards
from surefoot.checks.loop.optimizers import Optimizers
from surefoot.checks.loop.rounding import HALVES, lost, lost_share, standing_still
from surefoot.events.callers import caller
from surefoot.torch_inside.autograd import number, writes
from surefoot.torch_inside.modes import aside
from surefoot.torch_inside.profiler import is_profiling

_SNAPSHOTS = 3
"""The number of updates of each optimizer that are compared with the weights before them."""
MOST_COMPARED = 1 << 24
"""The most elements of an optimizer's parameters that are copied before an update, to see whether they move."""
MOST_COMPARED_ON_DEVICE = 1 << 21
"""The same for those on an accelerator, whose memory is the scarcest: 8 MiB in float32."""
_STATES = 3
"""An optimizer's first update may allocate this many tensors for each parameter."""


@dataclass
class _Mark:
    """A gradient that an update used, and its version counter at that time."""

    gradient: weakref.ref[torch.Tensor]
    writes: int
    used: int
    """The version counter at the time of the update. Later backwards do not change it."""
    carried: bool = False

    def stands(self, gradient: torch.Tensor | None) -> bool:
        return gradient is not None and self.gradient() is gradient and writes(gradient) == self.writes


class Gradients(Observer):
    """Follows gradients from backward to update."""

    after = (Forwards, Backwards)

    def __init__(self, scene: Scene, backwards: Backwards, optimizers: Optimizers) -> None:
        super().__init__(scene)
        self.backwards, self._optimizers = backwards.seen, optimizers
        self.updates: list[Update] = []
        self.made: list[Optimizer] = []
        """Keeps optimizers alive, so that one without updates still exists when facts are collected."""
        self.pending: list[str] = []
        """The lines of the backwards whose gradients no update has used yet."""
        self.taken: set[str] = set()
        """Lines of backwards whose gradients the loop copied, summed itself, or took with respect to an input."""
        self.windows: list[int] = []
        self.unscaled: set[torch.Tensor] | None = None
        """If a scaler scaled the loss: the parameters whose gradients were unscaled since. Otherwise None."""
        self._marks: dict[torch.Tensor, _Mark] = {}
        self.carried: WeakNotes[None] = WeakNotes()
        """Gradients that contain what an earlier update already used, and values computed from them since the
        backward.
        """
        self._given: list[torch.Tensor] = []
        """Parameters that have a gradient after the last backward."""
        self._reached_by: list[tuple[WeakTensorSet, bool]] = []
        """For each backward: its leaves, and whether it had any."""
        self._roots: set[int] = set()
        """The graph numbers of losses that had a backward since the last update and are still in the gradients."""
        self._discarded: Counter[str] = Counter()
        self._used: Counter[str] = Counter()
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.followers: set[torch.Tensor] = set()
        """Parameters that were written to between two updates, while others of their optimizer were not."""
        self._writes: dict[torch.Tensor, int] = {}
        self._taught = WeakTensorSet()
        """Leaves that more than a penalty has reached."""
        self._first_prints: dict[torch.Tensor, int] = {}
        self._settled = 0
        self.moved_by_hand = False

    def __enter__(self) -> Gradients:
        self.follow(Optimizer, "__init__", after=self._made)
        self.follow(Optimizer, "zero_grad", before=self._clears)
        self.follow(nn.Module, "zero_grad", before=self._clears)
        return self

    def _made(self, _: None, optimizer: Optimizer, *__: object, **___: object) -> None:
        self.made.append(optimizer)
        self.scene.look_again()

    def graph_seen(self, graph: Graph) -> None:
        self.scene.penalized = (self.scene.penalized - graph.leaves) | (graph.penalized - self._taught)
        self._taught |= graph.leaves - graph.penalized
        self.scene.reached |= graph.leaves
        self._reached_by.append((WeakTensorSet(graph.leaves), bool(graph.leaves)))
        self.backwards[-1].reach = hash(frozenset(id(each) for each in graph.leaves if isinstance(each, nn.Parameter)))
        roots = [unscaled(root) for root in graph.roots]
        repeated = not graph.numbers.isdisjoint(self._roots)
        asked = self.backwards[-1].asked
        if not asked:
            self._roots |= {number(root) for root in roots if not hasattr(root, "variable")}
        self.backwards[-1].repeated = repeated and not asked
        self._compare_by_hand()

    def backward_begins(self, losses: object) -> None:
        self._see_emptied()
        self.carried = WeakNotes()
        for parameter, mark in list(self._marks.items()):
            if mark.stands(parameter.grad):
                mark.carried = True
            else:
                del self._marks[parameter]

    def backward_ends(self) -> None:
        where = self.backwards[-1].where
        if self.scene.updating is None:
            self.pending.append(where)
        for parameter, mark in self._marks.items():
            if mark.carried and parameter.grad is not None:
                mark.gradient, mark.writes = weakref.ref(parameter.grad), writes(parameter.grad)
                self.carried[parameter.grad] = None
        self._given = [parameter for parameter in self.scene.names() if parameter.grad is not None]
        self.scene.reached |= set(self._given)

    def _see_emptied(self) -> None:
        """If the loop sets gradients to None before an update, they were only measured and lead to no update."""
        if self.pending and self._given and all(parameter.grad is None for parameter in self._given):
            self.scene.bus.tell("gradients_discarded")
        self._given = []

    def update_begins(self, optimizer: Optimizer) -> None:
        self._see_emptied()
        parameters = list(held(optimizer))
        names = self.scene.names()
        trainable = {p for p in parameters if p.requires_grad}
        self.scene.trained |= trainable
        written = {p for p in parameters if self._writes.get(p, writes(p)) != writes(p)}
        self.followers |= written if len(written) < len(parameters) else set()
        carried = tuple(names.get(p, "?") for p in parameters if p.grad in self.carried)
        place = self.scene.optimizers.index(optimizer)
        update = Update(len(self.updates) + 1, place, caller(), len(parameters), carried)
        update.rate = max((float(group.get("lr", 1.0)) for group in optimizer.param_groups), default=1.0)
        update.planned_rate = max(
            (float(group["initial_lr"]) for group in optimizer.param_groups if "initial_lr" in group),
            default=optimizer.defaults.get("lr"),
        )
        update.anomaly, update.profiled = torch.is_anomaly_enabled(), is_profiling()
        update.micro_batches, update.lines = len(self.pending), len(set(self.pending))
        update.frozen = not trainable
        self.updates.append(update)
        self._before = []
        if self.scene.stepped.get(optimizer, 0) < _SNAPSHOTS:
            self._before = self._copies(optimizer, parameters)
        self._settle_backwards()

    def _copies(self, optimizer: Optimizer, parameters: list[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Copies of parameters, to see whether the update moves them."""
        some = list(_sampled(parameters))
        states = [] if optimizer.state else [p for p in parameters for _ in range(_STATES)]
        if not self.scene.has_room("whether updates move weights", some, still=states):
            return []
        with aside():
            return [(p, p.detach().clone()) for p in some]

    def _settle_backwards(self) -> None:
        for backward in self.backwards[self._settled :]:
            backward.followed_by_update = True
        self._settled = len(self.backwards)

    def update_left_out(self, optimizer: Optimizer) -> None:
        """Gradients of a skipped update count as used."""
        for backward in self.backwards[self._settled :]:
            backward.cleared = True
        self._settle_backwards()
        self._use(p for p in held(optimizer) if p.grad is not None)

    def update_ends(self, optimizer: Optimizer) -> None:
        update, names = self.updates[-1], self.scene.names()
        self._writes |= {p: writes(p) for p in held(optimizer)}
        graded = [p for p in held(optimizer) if p.grad is not None]
        update.with_gradient = len(graded)
        self.scene.reached |= set(graded)  # gradients from a transform may have been assigned to some
        if self.scene.close:
            self._read(update, graded, names)
        self._use(graded)
        self._before = []

    def _use(self, graded: Iterable[torch.Tensor]) -> None:
        for parameter in graded:
            gradient: Any = parameter.grad
            self._marks[parameter] = _Mark(weakref.ref(gradient), writes(gradient), writes(gradient))
            self.carried.forget(gradient)
        self._used.update(self.pending)
        self.windows.append(len(self.pending))
        self.pending, self._roots = [], set()

    def _read(self, update: Update, graded: list[torch.Tensor], names: dict[torch.Tensor, str]) -> None:
        with aside():
            dense: list[tuple[torch.Tensor, Any]] = [(p, p.grad) for p in graded if readable(p.grad)]
            ends = [end for _, gradient in dense for end in _ends(gradient)]
            # on a device all are compared, for one read; on the host one by one, until one has moved
            moves = {p: (p != was).any() for p, was in self._before if not p.is_cpu}
            values = HOST.fresh([*ends, *moves.values()])
            moves = dict(zip(moves, values[len(ends) :], strict=True))
            numbers = iter(values)
            sizes = {p: max(-float(next(numbers)), float(next(numbers))) for p, _ in dense}
            update.all_zero = bool(sizes) and len(dense) == len(graded) and not any(sizes.values())
            update.nonfinite = tuple(names.get(p, "?") for p, size in sizes.items() if not math.isfinite(size))
            before = [(p, was) for p, was in self._before if p in sizes and sizes[p] > 0]
            if before:
                update.moved = any(bool(moves[p]) if p in moves else not torch.equal(p, was) for p, was in before)
            halves = [(p, was) for p, was in before if p.dtype in HALVES]
            if halves:
                update.half = str(halves[0][0].dtype).removeprefix("torch.")
                counted = iter(HOST.fresh([count for p, was in halves for count in lost(p, was)]))
                counts = {p: (int(next(counted)), int(next(counted))) for p, _ in halves}
                update.lost_share = lost_share(counts)
                update.still = frozenset(names.get(p, "?") for p in standing_still(counts, sizes))

    def _clears(self, owner: Any, *_: object, **__: object) -> None:
        """Gradients are about to be cleared. Inside an update, this belongs to a closure and is ignored."""
        if self.scene.updating is not None:
            return
        self._see_emptied()
        self.scene.bus.tell("clearing")
        cleared = list(held(owner) if isinstance(owner, Optimizer) else owner.parameters())
        if any(p.grad is not None for p in cleared):
            for backward in self.backwards[self._settled :]:
                backward.cleared = True
        if any(self._writes.get(p, writes(p)) != writes(p) for p in cleared if p.grad is not None):
            self._used.update(self.pending)  # used by hand, for example to climb to the worst weights nearby
        elif self.pending and any(p.grad is not None and not self.is_used(p) for p in cleared):
            self._discarded.update(self.pending)
            self.scene.bus.tell("gradients_discarded")
        self.pending = []
        if not any(p.grad is not None for p in self.scene.optimized().difference(cleared)):
            self._roots = set()

    def is_used(self, parameter: torch.Tensor) -> bool:
        """Is its gradient exactly the one that the last update used?"""
        mark = self._marks.get(parameter)
        gradient = parameter.grad
        return mark is not None and mark.gradient() is gradient is not None and writes(gradient) == mark.used

    def is_used_gradient(self, tensor: torch.Tensor) -> bool:
        """Is this the unchanged gradient that an update used?"""
        return any(mark.stands(tensor) for mark in self._marks.values())

    def _compare_by_hand(self) -> None:
        """If weights change before any optimizer update, the script changes them by hand."""
        if self.scene.updates or self.moved_by_hand:
            return
        trained = [p for p in self.scene.names() if p.requires_grad and readable(p)]
        for parameter, now in zip(trained, fingerprints(trained, 64), strict=True):
            self.moved_by_hand |= self._first_prints.setdefault(parameter, now) != now

    def settle(self) -> None:
        """Fills in what needs all optimizers to be known."""
        optimized = self.scene.optimized()
        holding = [set(held(each)) for each in self.scene.optimizers]
        updated = self._optimizers.updated()
        sharded = any(hasattr(each, "placements") for each in optimized)  # a graph has their full tensors
        for (leaves, any_at_all), backward in zip(self._reached_by, self.backwards, strict=False):
            backward.reaches_optimized = not leaves.isdisjoint(optimized) or (sharded and any_at_all)
            backward.optimizers = frozenset(n for n, each in enumerate(holding) if not leaves.isdisjoint(each))
            backward.idle = frozenset(n for n in backward.optimizers if not leaves.isdisjoint(holding[n] - updated))

    def facts(self) -> Iterator[LoopFacts | GradientFacts]:
        yield LoopFacts(updates=tuple(self.updates), weights_by_hand=self.moved_by_hand, ended=self.scene.ended)
        yield GradientFacts(discards=tuple(self._discards()))

    def _discards(self) -> Iterator[Discard]:
        for where, count in self._discarded.items():
            if where not in self.taken:
                yield Discard(where, count, self._used[where])


def _ends(gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The least and the largest element. `aminmax` makes nothing as large as the gradient, and is quick."""
    least, largest = (gradient.abs() if gradient.is_complex() else gradient).aminmax()
    return least, largest


def _sampled(parameters: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Parameters to compare before and after an update: small ones first, up to `MOST_COMPARED` elements."""
    left = {True: MOST_COMPARED, False: MOST_COMPARED_ON_DEVICE}
    for each in sorted(parameters, key=lambda each: each.numel()):
        left[each.is_cpu] -= each.numel()
        if readable(each) and left[each.is_cpu] >= 0:
            yield each
