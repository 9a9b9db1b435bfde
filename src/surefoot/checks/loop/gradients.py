"""Follows gradients from backward to update: who clears them, who uses them, what they move."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.autograd_graph import Graph, unscaled
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, fingerprint, held, readable, tensors
from surefoot.checks.engine.types import Args
from surefoot.checks.engine.weak_notes import WeakNotes
from surefoot.checks.engine.weak_set import WeakTensorSet
from surefoot.checks.facts.gradients import Discard
from surefoot.checks.facts.loop import Optimizing, Update
from surefoot.checks.facts.models import Leaf
from surefoot.checks.loop.backwards import Backwards
from surefoot.checks.loop.forwards import Forwards, Sentinel
from surefoot.checks.loop.rounding import HALVES, lost, lost_share, standing_still
from surefoot.events.autograd import aside, is_profiling, number, writes
from surefoot.events.callers import caller

_SNAPSHOTS = 3
"""So many updates of each optimizer are compared with what was before them."""
MOST_COMPARED = 1 << 24
"""So many elements of an optimizer's parameters are copied before an update, to see whether they move."""
_OLD = 3
"""A graph should be gone so many updates after its backward."""
_COLLECTIONS = 8
"""Garbage is collected so often at most, to see whether a graph is kept by more than itself."""
_KEPT = "surefoot kept"


@dataclass
class _Mark:
    """A gradient that an update has used: the object, and how often it had been written by then."""

    gradient: weakref.ref[torch.Tensor]
    writes: int
    used: int
    """How often it had been written by the time of the update, whatever backwards came since."""
    carried: bool = False

    def stands(self, gradient: torch.Tensor | None) -> bool:
        return gradient is not None and self.gradient() is gradient and writes(gradient) == self.writes


class Gradients(Observer):
    """From backward to update."""

    after = (Forwards, Backwards)

    def __init__(self, scene: Scene, backwards: Backwards) -> None:
        super().__init__(scene)
        self.backwards = backwards.seen
        self.updates: list[Update] = []
        self.made: list[Optimizer] = []
        """Kept, so that an optimizer that never made an update is still there when facts are gathered."""
        self.pending: list[str] = []
        """The lines of the backwards whose gradients no update has used."""
        self.taken: set[str] = set()
        """Lines of backwards whose gradients the loop itself has copied, added up or asked an input for."""
        self.windows: list[int] = []
        self.unscaled: set[torch.Tensor] | None = None
        """Where a scaler has scaled a loss: the parameters whose gradients were unscaled since."""
        self._leaves: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._marks: dict[torch.Tensor, _Mark] = {}
        self.carried: WeakNotes[None] = WeakNotes()
        """Gradients that hold what an earlier update had used, and what was computed from them since the backward."""
        self._given: list[torch.Tensor] = []
        """Parameters that had a gradient after the last backward."""
        self._reached_by: list[tuple[WeakTensorSet, bool]] = []
        """Of each backward: its leaves, and whether it had any."""
        self._sentinels: list[tuple[int, weakref.ref[Sentinel]]] = []
        self._roots: set[int] = set()
        """The numbers of what was back-propagated since the last update and is still in the gradients."""
        self._most_kept, self._collections = 0, _COLLECTIONS
        self._discarded: Counter[str] = Counter()
        self._used: Counter[str] = Counter()
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._order: list[int] = []
        self._trainable: dict[Optimizer, int] = {}
        """How many parameters of an optimizer had requires_grad in the update in which the most had."""
        self.followers: set[torch.Tensor] = set()
        """Parameters that were written to between two updates of an optimizer that holds them beside others."""
        self._writes: dict[torch.Tensor, int] = {}
        self._taught = WeakTensorSet()
        """Leaves that more than a penalty has reached."""
        self._first_prints: dict[torch.Tensor, int] = {}
        self._settled = 0
        self._leaf_prints: dict[int, int] = {}
        self._inputs: set[int] = set()
        """Tensors with a gradient of their own that were given to a model, or that a part of a loss is derived by."""
        self.moved_by_hand = False

    def __enter__(self) -> Gradients:
        self.follow(Optimizer, "__init__", after=self._made)
        self.follow(Optimizer, "zero_grad", before=self._clears)
        self.follow(nn.Module, "zero_grad", before=self._clears)
        return self

    def _made(self, _: None, optimizer: Optimizer, *__: object, **___: object) -> None:
        self.made.append(optimizer)
        self.scene.look_again()

    def model_called(self, model: nn.Module, args: Args) -> None:
        self.note_inputs(tensors(args))

    def note_inputs(self, given: Iterable[torch.Tensor]) -> None:
        self._inputs |= {id(each) for each in given if each.requires_grad and each.is_leaf}

    def graph_seen(self, graph: Graph) -> None:
        self.scene.penalized = (self.scene.penalized - graph.leaves) | (graph.penalized - self._taught)
        self._taught |= graph.leaves - graph.penalized
        self.scene.reached |= graph.leaves
        self._reached_by.append((WeakTensorSet(graph.leaves), bool(graph.leaves)))
        for leaf in graph.leaves:
            _, count = self._leaves.get(id(leaf), (None, 0))
            self._leaves[id(leaf)] = weakref.ref(leaf), count + 1
            if self.scene.close and not count and readable(leaf):
                self._leaf_prints[id(leaf)] = fingerprint(leaf, 64)
        self.backwards[-1].reach = hash(frozenset(id(each) for each in graph.leaves if isinstance(each, nn.Parameter)))
        roots = [unscaled(root) for root in graph.roots]
        repeated = not graph.numbers.isdisjoint(self._roots)
        asked = self.backwards[-1].asked
        if not asked:
            self._roots |= {number(root) for root in roots if not hasattr(root, "variable")}
        for root in roots:
            sentinel = Sentinel()
            if not asked:
                root.metadata["surefoot"] = sentinel
            self._sentinels.append((self.scene.updates, weakref.ref(sentinel)))
            for node in graph.lowest:
                node.metadata[_KEPT] = sentinel
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
        """Gradients that the loop itself has set to None before an update are measured, and lead to none."""
        if self.pending and self._given and all(parameter.grad is None for parameter in self._given):
            self.scene.bus.tell("gradients_discarded")
        self._given = []

    def update_begins(self, optimizer: Optimizer) -> None:
        self._see_emptied()
        parameters = list(held(optimizer))
        names = self.scene.names()
        self._order.append(id(optimizer))
        trainable = {p for p in parameters if p.requires_grad}
        self.scene.trained |= trainable
        written = {p for p in parameters if self._writes.get(p, writes(p)) != writes(p)}
        self.followers |= written if len(written) < len(parameters) else set()
        self._trainable[optimizer] = max(len(trainable), self._trainable.get(optimizer, 0))
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
            with aside():
                self._before = [(p, p.detach().clone()) for p in _sampled(parameters)]
        self._settle_backwards()

    def _settle_backwards(self) -> None:
        for backward in self.backwards[self._settled :]:
            backward.followed_by_update = True
        self._settled = len(self.backwards)

    def update_left_out(self, optimizer: Optimizer) -> None:
        """Gradients that were brought to an update are used, whether or not it was made."""
        for backward in self.backwards[self._settled :]:
            backward.cleared = True
        self._settle_backwards()
        self._use(p for p in held(optimizer) if p.grad is not None)

    def update_ends(self, optimizer: Optimizer) -> None:
        update, names = self.updates[-1], self.scene.names()
        self._writes |= {p: writes(p) for p in held(optimizer)}
        graded = [p for p in held(optimizer) if p.grad is not None]
        update.with_gradient = len(graded)
        self.scene.reached |= set(graded)  # some were given a gradient that a transform had computed
        if self.scene.close:
            self._read(update, graded, names)
        self._use(graded)
        self._most_kept = max(self._most_kept, self._kept())
        self._before = []

    def _use(self, graded: Iterable[torch.Tensor]) -> None:
        for parameter in graded:
            gradient: Any = parameter.grad
            self._marks[parameter] = _Mark(weakref.ref(gradient), writes(gradient), writes(gradient))
            self.carried.forget(gradient)
        self._used.update(self.pending)
        self.windows.append(len(self.pending))
        self.pending, self._roots = [], set()

    def _kept(self) -> int:
        """How many graphs outlive the updates after them, and are no garbage that waits to be collected."""
        if self._most_kept < 2 <= self._old() and self._collections:
            self._collections -= 1
            gc.collect()
        return self._old() if self._collections else 0

    def _old(self) -> int:
        """How many graphs of this training are older than they should become; those that are gone are forgotten.

        Variables of a training before hold the graphs of its last step: these do not grow in number.
        """
        self._sentinels = [each for each in self._sentinels if each[1]() is not None]
        return sum(self.scene.training <= update <= self.scene.updates - _OLD for update, _ in self._sentinels)

    def _read(self, update: Update, graded: list[torch.Tensor], names: dict[torch.Tensor, str]) -> None:
        with aside():
            dense: list[tuple[torch.Tensor, Any]] = [(p, p.grad) for p in graded if readable(p.grad)]
            sizes = {p: gradient.abs().amax() if gradient.numel() else gradient.sum() for p, gradient in dense}
            update.all_zero = bool(sizes) and len(dense) == len(graded) and all(not size for size in sizes.values())
            update.nonfinite = tuple(names.get(p, "?") for p, size in sizes.items() if not torch.isfinite(size))
            before = [(p, was) for p, was in self._before if p in sizes and sizes[p] > 0]
            if before:
                update.moved = any(not torch.equal(p, was) for p, was in before)
            halves = [(p, was) for p, was in before if p.dtype in HALVES]
            if halves:
                update.half = str(halves[0][0].dtype).removeprefix("torch.")
                counts = {p: lost(p, was) for p, was in halves}
                update.lost_share = lost_share(counts)
                update.still = frozenset(names.get(p, "?") for p in standing_still(counts, sizes))

    def _clears(self, owner: Any, *_: object, **__: object) -> None:
        """Gradients are about to be cleared; those of an update in the making are a closure's own affair."""
        if self.scene.updating is not None:
            return
        self._see_emptied()
        self.scene.bus.tell("clearing")
        cleared = list(held(owner) if isinstance(owner, Optimizer) else owner.parameters())
        if any(p.grad is not None for p in cleared):
            for backward in self.backwards[self._settled :]:
                backward.cleared = True
        if any(self._writes.get(p, writes(p)) != writes(p) for p in cleared if p.grad is not None):
            self._used.update(self.pending)  # by hand, as a climb to the worst weights nearby does
        elif self.pending and any(p.grad is not None and not self.is_used(p) for p in cleared):
            self._discarded.update(self.pending)
            self.scene.bus.tell("gradients_discarded")
        self.pending = []
        if not any(p.grad is not None for p in self.scene.optimized().difference(cleared)):
            self._roots = set()

    def is_used(self, parameter: torch.Tensor) -> bool:
        """Is its gradient the one that the last update has used, and nothing more?"""
        mark = self._marks.get(parameter)
        gradient = parameter.grad
        return mark is not None and mark.gradient() is gradient is not None and writes(gradient) == mark.used

    def is_used_gradient(self, tensor: torch.Tensor) -> bool:
        """Is this what the last update of some parameter was made from, as it was then?"""
        return any(mark.stands(tensor) for mark in self._marks.values())

    def _compare_by_hand(self) -> None:
        """Weights that move although no optimizer made an update are moved by hand."""
        if self.scene.updates or self.moved_by_hand:
            return
        for parameter in self.scene.names():
            if parameter.requires_grad and readable(parameter):
                now = fingerprint(parameter, 64)
                self.moved_by_hand |= self._first_prints.setdefault(parameter, now) != now

    def settle(self) -> None:
        """What can only be said when all optimizers are known."""
        optimized = self.scene.optimized()
        holding = [set(held(each)) for each in self.scene.optimizers]
        updated = self._updated()
        sharded = any(hasattr(each, "placements") for each in optimized)  # their wholes, in a graph, are other tensors
        for (leaves, any_at_all), backward in zip(self._reached_by, self.backwards, strict=False):
            backward.reaches_optimized = not leaves.isdisjoint(optimized) or (sharded and any_at_all)
            backward.optimizers = frozenset(n for n, each in enumerate(holding) if not leaves.isdisjoint(each))
            backward.idle = frozenset(n for n in backward.optimizers if not leaves.isdisjoint(holding[n] - updated))

    @property
    def kept_graphs(self) -> int:
        return self._most_kept

    def discards(self) -> Iterator[Discard]:
        for where, count in self._discarded.items():
            if where not in self.taken:
                yield Discard(where, count, self._used[where])

    def leaves(self) -> Iterator[Leaf]:
        """Tensors outside all models and optimizers that collect gradients again and again."""
        for leaf in self._loose():
            count = self._leaves[id(leaf)][1]
            fixed = count >= 3 and self._leaf_prints.get(id(leaf)) == fingerprint(leaf, 64)
            is_input = id(leaf) in self._inputs  # such as the points at which derivatives are taken
            path = "" if is_input else self._path(leaf)
            yield Leaf(tuple(leaf.shape), count, path, fixed and not is_input)

    def _loose(self) -> Iterator[torch.Tensor]:
        known = self.scene.optimized() | set(self.scene.names())
        for ref, count in self._leaves.values():
            leaf = ref()
            if leaf is not None and leaf not in known and count >= 2 and leaf.grad is not None:
                yield leaf

    def _path(self, leaf: torch.Tensor) -> str:
        for model, prefix in self.scene.phases.models.items():
            for owner, module in model.named_modules():
                for name, value in vars(module).items():
                    inside = value if isinstance(value, list | tuple) else [value]
                    if any(each is leaf for each in inside):
                        return f"{prefix}{owner}.{name}".lstrip(".")
        return ""

    def optimizers(self) -> Iterator[Optimizing]:
        names, models, updated = self.scene.names(), self.scene.phases.models, self._updated()
        loose = {leaf.shape for leaf in self._loose()}
        for optimizer in self.scene.optimizers:
            parameters = list(held(optimizer))
            trainable = [p for p in parameters if p.requires_grad]
            unreached = [p for p in trainable if p not in self.scene.reached]
            foreign = [p for p in unreached if p not in names or p.shape in loose]
            yield Optimizing(
                kind=type(optimizer).__name__,
                updates=self.scene.stepped.get(optimizer, 0),
                parameters=len(parameters),
                frozen=len(parameters) - self._trainable.get(optimizer, len(trainable)),
                foreign=tuple("x".join(map(str, p.shape)) for p in foreign) if models else (),
                reached=sum(p in self.scene.reached for p in trainable),
                of_models=any(p in names for p in parameters),
                maximizes=any(group.get("maximize", False) for group in optimizer.param_groups),
                doubly_held=tuple(self._doubly_held(optimizer, names)),
                moved=any(self._has_moved(p) for p in parameters if p not in updated),
                betas=_betas(optimizer),
            )

    def _updated(self) -> set[torch.Tensor]:
        """What is held by optimizers that make updates."""
        return {p for each in self.scene.optimizers if self.scene.updates_of(each) for p in held(each)}

    def _has_moved(self, parameter: torch.Tensor) -> bool:
        before = self._leaf_prints.get(id(parameter))
        return before is not None and fingerprint(parameter, 64) != before

    def _doubly_held(self, optimizer: Optimizer, names: dict[torch.Tensor, str]) -> Iterator[str]:
        for other in self.scene.optimizers:
            if other is optimizer or other.param_groups is optimizer.param_groups:
                continue
            turns = [each for each in self._order if each in (id(optimizer), id(other))]
            switches = sum(a != b for a, b in pairwise(turns))
            if switches >= 3:
                shared = set(held(optimizer)).intersection(held(other))
                yield from (names.get(p, "?") for p in held(optimizer) if p in shared)


def _betas(optimizer: Optimizer) -> tuple[float, float] | None:
    found = optimizer.param_groups[0].get("betas") if optimizer.param_groups else None
    return (float(found[0]), float(found[1])) if isinstance(found, tuple | list) and len(found) == 2 else None


def _sampled(parameters: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Parameters to be compared with what they were: the small ones first, until there are enough elements."""
    left = MOST_COMPARED
    for each in sorted(parameters, key=lambda each: each.numel()):
        left -= each.numel()
        if readable(each) and left >= 0:
            yield each
