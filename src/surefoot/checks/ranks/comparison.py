"""Takes notes of what this rank sees (data, randomness, weights, gradients), and exchanges them with the others."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, digest, fingerprint, fingerprints, readable, several, tensors
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.facts.losses import Loss
from surefoot.checks.facts.ranks import RankFacts, Ranks
from surefoot.checks.loop.forwards import random_state
from surefoot.checks.losses.loss_calls import Losses
from surefoot.checks.ranks.compare_notes import FIRST_NOTES, compare
from surefoot.checks.ranks.gradient_averages import GradientAverages
from surefoot.checks.ranks.metric_exchange import MetricExchange
from surefoot.checks.ranks.rank_counts import RankCounts
from surefoot.checks.samples.loaders import Loaders
from surefoot.checks.samples.shares import share_of
from surefoot.events.callers import caller
from surefoot.events.rank_notes import tell, told

TOLD_AT = (FIRST_NOTES, 6, 8, 12, 16, 24, 32, 48, 64, 96)
"""Every rank writes its notes at these update counts. The last notes include the earlier ones."""
WAIT = 5.0
"""The seconds that a rank waits for notes of others. No collective is used, so nothing can hang."""
_END = 0
_FORWARDS = 64
_GRADIENTS = ("all_reduce", "all_gather", "reduce_scatter_tensor")
_ACTIVATIONS = ("all_gather_into_tensor", "all_to_all", "all_to_all_single", "send", "recv", "isend", "irecv")
_NOISE = {"rand", "randn", "rand_like", "randn_like", "normal", "normal_", "uniform_", "bernoulli", "bernoulli_"}
"""Functions that draw values. Draws of indices, as in a shuffle, may well be the same on all ranks."""


class RankComparison(Observer):
    """The notes of one rank, exchanged with the others."""

    after = (Losses, Loaders, GradientAverages, MetricExchange, RankCounts)

    def __init__(
        self,
        scene: Scene,
        losses: Losses,
        loaders: Loaders,
        averaging: GradientAverages,
        metrics: MetricExchange,
        counts: RankCounts,
    ) -> None:
        super().__init__(scene)
        self._losses, self._loaders, self._averaging, self._metrics = losses, loaders, averaging, metrics
        self._counts = counts
        self._samples: set[int] = set()
        self._bypassed = self._wrapped = self._parted = self._joins = False
        self._states: list[tuple[int, bool]] = []
        self._state, self._drawn = 0, False
        self._norms: list[float] = []
        self._syncing: list[bool] = []
        self._windows: list[list[bool]] = []
        self._reduced_again = ""
        self._by_hand: set[torch.Tensor] = set()
        """Parameters whose gradients the loop exchanges itself."""
        self._inside: dict[nn.Module, bool] = {}
        self._first: dict[str, int] = {}
        self._weights: dict[int, dict[str, int]] = {}
        self._course: list[int] = []
        """A hash of the last parameter at the start of every forward."""
        self._notes: dict[str, Any] | None = None
        self._told_at: list[int] = []
        self._others: list[dict[str, Any]] = []
        self._count = 1

    def __enter__(self) -> RankComparison:
        if dist.is_available():
            for name in _GRADIENTS:
                self.follow(dist, name, before=self._collective)
            for name in _ACTIVATIONS:
                self.follow(dist, name, before=self._in_forward)
            self.follow(dist, "destroy_process_group", before=lambda *_, **__: self.read())
            self.follow(DistributedDataParallel, "join", before=self._joined)
            self._follow_norms()
        return self

    def _joined(self, *_: object, **__: object) -> None:
        self._joins = True

    def _follow_norms(self) -> None:
        def clipped(norm: Any, *_: object, **__: object) -> None:
            if several() and len(self._norms) < FIRST_NOTES and not hasattr(norm, "placements"):
                self._norms.append(float(norm))

        self.follow(nn.utils, "clip_grad_norm_", after=clipped)

    def _in_forward(self, *_: object, **__: object) -> None:
        """Ranks that exchange activations share the work on one sample, unless they exchange batch statistics."""
        self._parted |= self.scene.phases.in_model() and not any(
            isinstance(each, nn.SyncBatchNorm) for model in self.scene.phases.models for each in model.modules()
        )

    def _collective(self, given: object, *_: object, **__: object) -> None:
        """Records gradients that the loop exchanges itself, also if a wrapper already exchanges them."""
        self._in_forward()
        if not isinstance(given, torch.Tensor):
            return
        address = given.untyped_storage().data_ptr()
        own = [(p, p.grad) for p in self.scene.names() if p.grad is not None and readable(p.grad)]
        shared = {p for p, gradient in own if gradient.untyped_storage().data_ptr() == address}
        if shared and self._wrapped and self._synced_last():
            self._reduced_again = self._reduced_again or caller()
        self._by_hand |= shared

    def _synced_last(self) -> bool:
        return bool(self._syncing) and self._syncing[-1]

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """Records noise between forwards, and scaling by the number of ranks."""
        if not dist.is_initialized():
            return
        name = getattr(function, "__name__", "")
        if self._state and kwargs.get("generator") is None and name in _NOISE:
            self._drawn = True
        else:
            averaged = self._wrapped and self._synced_last() and not self._by_hand
            self._counts.scaled(name, args, out, averaged=averaged)

    def model_called(self, model: nn.Module, args: Args) -> None:
        if not several() or not torch.is_grad_enabled():
            return
        wrapper = isinstance(model, DistributedDataParallel)
        if wrapper and not self._wrapped:
            self._wrapped, self._states = True, []  # earlier forwards only inspected the model
        if model not in self._inside:
            self._inside[model] = not wrapper and _is_inside_wrapper(model)
        if not self._first:
            self._first = self._prints()
            self._averaging.look_at(model)
        self._follow_course(model)
        self._bypassed |= self._inside[model]
        self._count = dist.get_world_size()
        self._syncing.append(wrapper and bool(model.require_backward_grad_sync))
        self._state = random_state()

    def _follow_course(self, model: nn.Module) -> None:
        if len(self._course) < _FORWARDS:
            last = [p for p in model.parameters() if p.requires_grad and readable(p)][-1:]
            self._course += map(fingerprint, last)

    def model_returned(self, model: nn.Module, args: object, kwargs: Kwargs, output: object) -> None:
        if not several() or not torch.is_grad_enabled() or len(self._states) > 4 * FIRST_NOTES:
            return
        self._states.append((self._state, self._drawn or random_state() != self._state))
        self._drawn = False
        first = next((each for each in tensors((args, kwargs)) if readable(each) and each.dim() >= 1), None)
        if first is not None:
            self._samples |= {digest(row) for row in HOST.of(first)}

    def update_left_out(self, optimizer: Optimizer) -> None:
        self._windows.append(self._syncing)
        self._syncing = []

    def update_ends(self, optimizer: Optimizer) -> None:
        if not several():
            return
        self.update_left_out(optimizer)
        made = self.scene.stepped.get(optimizer, 0) + 1
        if made in TOLD_AT and made not in self._told_at:
            self._told_at.append(made)
            self._weights[made] = self._prints()
            self._notes = {**(self._notes or self._written()), "weights": self._weights}
            tell(self._notes, at=made)

    def _prints(self) -> dict[str, int]:
        named = {name: p for p, name in self.scene.names().items() if readable(p)}
        return dict(zip(named, fingerprints(named.values()), strict=True))

    def _written(self) -> dict[str, Any]:
        names, losses = self.scene.names(), self._losses.losses
        parted = self._parted or any(hasattr(p, "placements") for p in names)
        shares = [share_of(each, self.scene.phases) for each in ([] if parted else self._loaders.training())]
        return {
            "parted": parted,
            "course": list(self._course),
            "samples": sorted(self._samples),
            "shares": [share.told() if share else None for share in shares],
            "answers": [each.target_print for each in losses],
            "first": self._first,
            "alone": [] if self._wrapped else [name for p, name in names.items() if p not in self._by_hand],
            "states": list(self._states),
            "norms": list(self._norms),
            "gradients": self._averaging.windows,
            "targets": _targets(losses),
            "batches": None if self._joins else self._loaders.training_batches(),
        }

    def read(self) -> None:
        """Reads the last notes of all other ranks, at the end or before."""
        if self._notes is None or self._others or not several():
            return
        self._notes |= {"course": self._course, "evaluated": sorted(self._metrics.rows), "told": self._metrics.told}
        self._notes |= {"updates": len(self._windows), "read": self._loaders.trained_batches()}
        tell(self._notes, at=_END)
        for made in (_END, *reversed(self._told_at)):
            self._others = self._others or told(at=made, wait_seconds=WAIT if made == _END else 0.1)

    def facts(self) -> Iterator[RankFacts]:
        yield RankFacts(ranks=self._ranks())

    def _ranks(self) -> Ranks | None:
        """What differs between ranks, and what does not although it should."""
        self.read()
        windows = [each for each in self._windows if each]
        if not windows:
            return None
        synced = [sum(each) for each in windows]
        found = Ranks(count=self._count, bypassed=self._bypassed, reduced_again=self._reduced_again)
        found.wrapped, found.scaled_by_count = self._wrapped, self._counts.of_loss
        found.divided_again, found.counts_all = self._counts.of_gradients, self._counts.divides_by_total
        found.micro_batches = sum(map(len, windows)) / len(windows)
        found.syncs_per_update = sum(synced) / len(windows) if self._wrapped else 0.0
        found.last_unsynced = sum(any(each) and not each[-1] for each in windows) / len(windows)
        found.by_hand = bool(self._by_hand)
        found.never_synced = self._wrapped and not self._bypassed and not self._by_hand and not any(synced)
        if self._notes is not None and self._others:
            compare(found, self._notes, self._others)
        return found


def _targets(losses: list[Loss]) -> list[tuple[int, float]]:
    """For each update with losses of one kind only: its valid targets, and the weight of one target."""
    HOST.settle()
    found = []
    for update in range(FIRST_NOTES):
        own = [each for each in losses if each.update == update and each.weights and each.valid]
        count = sum(each.valid for each in own)
        alike = len({(each.function, each.site) for each in own}) == 1
        total = sum(each.weights[0] * (each.valid if each.reduction == "sum" else 1) for each in own)
        found.append((count, total / count if alike else 0.0))
    return found


def _is_inside_wrapper(model: nn.Module) -> bool:
    """Is this the model inside a wrapper, called without the wrapper?"""
    return any(type(each) is DistributedDataParallel and each.module is model for each in gc.get_objects())
