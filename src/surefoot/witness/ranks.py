"""Ranks: what is compared between processes, while a process group exists."""

from __future__ import annotations

import gc
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from surefoot.checks.evidence import Ranks
from surefoot.phases import caller, tell, told
from surefoot.witness.calls import random_state
from surefoot.witness.loaders import Loaders
from surefoot.witness.losses import Losses
from surefoot.witness.scene import Part, Scene, digest, fingerprint, readable, several, tensors

LOOKED_AT = 4
"""Every rank writes its notes down once: when an optimizer has made so many updates."""
WAIT = 5.0
"""So many seconds a rank waits for the notes of others; no collective is used, so that nothing can hang."""


class Between(Part):
    """One rank's notes, exchanged with the others once."""

    def __init__(self, scene: Scene, losses: Losses, loaders: Loaders) -> None:
        super().__init__(scene)
        self._losses, self._loaders = losses, loaders
        self._samples: set[int] = set()
        self._bypassed = self._wrapped = False
        self._states: list[tuple[int, bool]] = []
        self._state = 0
        self._norms: list[float] = []
        self._syncing: list[bool] = []
        self._windows: list[list[bool]] = []
        self._reduced_again = ""
        self._by_hand = False
        self._inside: dict[nn.Module, bool] = {}
        self._told = False
        self._notes: dict[str, Any] | None = None
        self._others: list[dict[str, Any]] = []
        self._count = 1

    def __enter__(self) -> Between:
        if dist.is_available():
            for name in ("all_reduce", "all_gather", "reduce_scatter_tensor"):
                self.follow(dist, name, before=self._collective)
            self.follow(dist, "destroy_process_group", before=lambda *_, **__: self.read())
            self._follow_norms()
        return self

    def _follow_norms(self) -> None:
        plain = nn.utils.clip_grad_norm_

        def followed(*args: Any, **kwargs: Any) -> Any:
            norm = plain(*args, **kwargs)
            if several() and len(self._norms) < LOOKED_AT and not hasattr(norm, "placements"):
                self._norms.append(float(norm))
            return norm

        nn.utils.clip_grad_norm_ = followed
        self._entered.callback(setattr, nn.utils, "clip_grad_norm_", plain)

    def _collective(self, given: Any, *_: Any, **__: Any) -> None:
        """Gradients that are exchanged by hand, of a model whose wrapper exchanges them."""
        if not isinstance(given, torch.Tensor) or not self._wrapped or (self._by_hand and not self._synced_last()):
            return
        shared = {p.grad.untyped_storage().data_ptr() for p in self.scene.names() if p.grad is not None}
        if given.untyped_storage().data_ptr() in shared:
            self._by_hand = True
            self._reduced_again = self._reduced_again or (caller() if self._synced_last() else "")

    def _synced_last(self) -> bool:
        return bool(self._syncing) and self._syncing[-1]

    def model_called(self, model: nn.Module, args: tuple[Any, ...]) -> None:
        if not several() or not torch.is_grad_enabled():
            return
        wrapper = isinstance(model, DistributedDataParallel)
        self._wrapped |= wrapper
        if model not in self._inside:
            self._inside[model] = not wrapper and _is_inside_wrapper(model)
        self._bypassed |= self._inside[model]
        self._count = dist.get_world_size()
        self._syncing.append(wrapper and bool(model.require_backward_grad_sync))
        self._state = random_state()

    def model_returned(self, model: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        if not several() or not torch.is_grad_enabled() or len(self._states) > 4 * LOOKED_AT:
            return
        self._states.append((self._state, random_state() != self._state))
        first = next((each for each in tensors((args, kwargs)) if readable(each) and each.dim() >= 1), None)
        if first is not None:
            self._samples |= {digest(row) for row in first}

    def update_ends(self, optimizer: Optimizer) -> None:
        if not several():
            return
        self._windows.append(self._syncing)
        self._syncing = []
        if self.scene.stepped.get(optimizer, 0) + 1 == LOOKED_AT and not self._told:
            self._told = True
            self._notes = self._written()
            tell(self._notes)

    def _written(self) -> dict[str, Any]:
        names = self.scene.names()
        return {
            "samples": [] if any(hasattr(p, "placements") for p in names) else sorted(self._samples),
            "weights": {name: fingerprint(p) for p, name in names.items() if readable(p)},
            "states": list(self._states),
            "norms": list(self._norms),
            "targets": sum(each.valid for each in self._losses.losses),
            "ragged": any(each.valid < each.targets for each in self._losses.losses),
            "batches": self._loaders.training_batches(),
        }

    def read(self) -> None:
        """Reads what other ranks have written; those that wrote nothing are left out."""
        if self._notes is not None and not self._others and several():
            self._others = told(wait_seconds=WAIT)

    def ranks(self) -> Ranks | None:
        """What differs between ranks, and what of it does not."""
        self.read()
        windows = [each for each in self._windows if each]
        if not windows:
            return None
        synced = [sum(each) for each in windows]
        found = Ranks(count=self._count, bypassed=self._bypassed, reduced_again=self._reduced_again)
        found.micro_batches = sum(map(len, windows)) / len(windows)
        found.syncs_per_update = sum(synced) / len(windows) if self._wrapped else 0.0
        found.never_synced = self._wrapped and not self._bypassed and not self._by_hand and not any(synced)
        if self._notes is not None and self._others:
            _compare(found, self._notes, self._others)
        return found


def _compare(found: Ranks, mine: dict[str, Any], others: list[dict[str, Any]]) -> None:
    everybody = [mine, *others]
    samples = set(mine["samples"])
    if samples:
        found.same_samples = max(len(samples.intersection(each["samples"])) for each in others) / len(samples)
    found.diverged = tuple(
        name for name, print_ in mine["weights"].items() if any(each["weights"].get(name) != print_ for each in others)
    )
    drew = any(drawn for _, drawn in mine["states"])
    found.same_randomness = drew and all(list(map(tuple, each["states"])) == mine["states"] for each in others)
    norms = [each["norms"][0] for each in everybody if each["norms"]]
    found.local_norms = tuple(norms) if len(norms) == len(everybody) else ()
    if any(each["ragged"] for each in everybody):
        found.target_counts = tuple(each["targets"] for each in everybody)
    counts = [each["batches"] for each in everybody]
    found.batch_counts = tuple(counts) if None not in counts else ()


def _is_inside_wrapper(model: nn.Module) -> bool:
    """Is this the model that a wrapper holds, called without the wrapper?"""
    return any(type(each) is DistributedDataParallel and each.module is model for each in gc.get_objects())
