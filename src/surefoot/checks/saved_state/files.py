"""Follows what is saved to files, loaded from them, and restored."""

from __future__ import annotations

import math
import pickle
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from surefoot.checks.engine.file_contents import (
    Contents,
    Weights,
    counts_in,
    is_optimizer_state,
    is_scheduler_state,
    is_weights,
    items_of,
    names_in,
    varying,
)
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, fingerprints, held, is_same, readable, tensors
from surefoot.checks.engine.types import Args
from surefoot.checks.facts.saved_state import File, SavedStateFacts
from surefoot.checks.samples.rows import Rows
from surefoot.checks.saved_state.going_on import goes_on
from surefoot.checks.updates.schedules import Schedules
from surefoot.events.callers import asked_by_user, caller, user_lines
from surefoot.source.best_so_far import sets_record

_SCORES = ("acc", "score", "metric", "f1", "iou", "bleu")
_FEWEST = 3
"""Fewer tensors may have the shapes of a model's by chance."""
_COUNTS = {"epoch", "step", "iter", "iteration"}
_SETTINGS = {"max", "total", "every", "per", "size", "warmup", "decay"}
_CHECKPOINTS = ("checkpoint", "ckpt", "resume")
_WRAPPERS = ("module.", "_orig_mod.")


@dataclass
class _Loaded:
    """A loaded file with the state of an optimizer or a scheduler."""

    where: str
    groups: list[dict[str, Any]]
    """The parameter groups of its optimizer; empty if it has no optimizer state."""
    scheduler: bool
    update: int
    prints: set[int]
    """Hashes of its weights."""
    going_on: list[Optimizer] = field(default_factory=list)
    """New optimizers that made their first update on its weights."""
    empty: list[Optimizer] = field(default_factory=list)
    """Those of `going_on` without moments, on data that training had seen before."""


class Files(Observer):
    """Follows state to a file and back."""

    after = (Schedules, Rows)
    stays = True

    def __init__(self, scene: Scene, schedules: Schedules, rows: Rows) -> None:
        super().__init__(scene)
        self._schedules, self._rows = schedules, rows
        self._files: list[File] = []
        self._loaded: list[_Loaded] = []
        self._restored: set[type] = set()
        self._bare: list[tuple[str, int, bool]] = []
        """Files without optimizer state: the line, the updates before, and whether they are meant for resuming."""
        self._whole = False
        """Another file has the optimizer state."""
        self._given_state: list[Optimizer] = []
        self._buffers: dict[nn.Module, dict[str, int]] = {}
        """Buffers before the first forward."""
        self._rates: dict[Optimizer, tuple[list[float], str]] = {}
        self._before_given: list[float] = []
        """The learning rates of an optimizer that is about to load a state."""
        self._midway: set[Optimizer] = set()
        """Optimizers that loaded a learning rate which a schedule had changed."""
        self._read = Weights()
        """The contents of the last file read, until a model loads them."""
        self._given: tuple[Weights, weakref.ref[nn.Module]] | None = None
        """The same after a module has loaded them. The module may be deleted before any model runs."""

    def __enter__(self) -> Files:
        self.follow(nn.Module, "load_state_dict", before=self._loads_weights)
        self.follow(Optimizer, "load_state_dict", before=self._is_given, after=self._restores_optimizer)
        for kind in vars(lr_scheduler).values():
            if isinstance(kind, type) and issubclass(kind, LRScheduler) and "load_state_dict" in vars(kind):
                self.follow(kind, "load_state_dict", after=self._restores_scheduler)
        for name in ("dump", "dumps"):
            self.follow(pickle, name, before=self._dumps)
        return self

    def _loads_weights(self, module: nn.Module, state: Any, strict: bool = True, *_: object, **kwargs: object) -> None:
        own = dict(module.named_parameters())
        kept = {name for name, each in own.items() if name in state and _is_same_memory(each, state[name])}
        read, self._read = self._read, Weights()
        self._given = (read, weakref.ref(module)) if own and read.elements else None
        if not own or (strict and not (kept and read.elements)):
            return
        names = set(state) - kept
        missing = [each for name, each in own.items() if name not in names]
        there = read.shapes or Counter(tuple(each.shape) for name in state for each in tensors(state[name]))
        there = there - Counter(tuple(each.shape) for name, each in own.items() if name in names)
        self._files.append(
            File(
                "loose-load",
                caller(),
                matched=sum(each.numel() for name, each in own.items() if name in names),
                wanted=sum(each.numel() for each in own.values()),
                found=max(read.elements, sum(each.numel() for each in tensors(state))),
                misnamed=sum(map(math.prod, (Counter(tuple(each.shape) for each in missing) & there).elements())),
                detail=next(iter(sorted(names - set(own))), ""),
            )
        )

    def model_found(self, model: nn.Module, prefix: str) -> None:
        self._buffers[model] = _prints(dict(_saved_buffers(model)))

    def model_called(self, model: nn.Module, args: Args) -> None:
        """Finds files that hold tensors like those of the trained model, but the model has none of their values."""
        if self._given is not None and self._given[1]() in set(model.modules()):
            self._given = None  # a running module has loaded it
        if not torch.is_grad_enabled() or not model.training:
            return
        gone = self._given is not None and self._given[1]() is None
        read = self._given[0] if self._given is not None and gone else self._read
        self._read, self._given = Weights(), None
        if not read.elements:
            return
        own = varying(filter(readable, model.parameters()))
        alike = not Counter(tuple(each.shape) for each in own) - read.shapes
        if len(own) >= _FEWEST and alike and read.prints.isdisjoint(fingerprints(own)):
            wanted = sum(map(torch.numel, own))
            self._files.append(File("unused-load", read.where, wanted=wanted, found=read.elements))

    def saving(self, contents: Contents, file: object) -> None:
        saved, prints = contents.value, contents.prints
        self._dumps(saved)
        for model, first in self._buffers.items():
            moved = {name: now for name, now in _prints(dict(_saved_buffers(model))).items() if now != first.get(name)}
            whole = prints.issuperset(fingerprints(filter(readable, model.parameters())))
            elsewhere = prints.isdisjoint(moved.values()) and names_in(saved).isdisjoint(names_in(moved))
            if moved and whole and elsewhere:
                self._files.append(File("without-buffers", caller(), detail=", ".join(moved)))
        if any(map(_is_wrapped, (saved, *contents.items))):
            self._files.append(File("wrapper-names", caller()))
        if any(map(is_optimizer_state, contents.items)):
            self._whole = True
        elif isinstance(saved, dict) and self._is_resumable(saved) and not _is_best(file):
            self._bare.append((caller(), self.scene.updates, _is_to_go_on(saved, file)))

    def _dumps(self, saved: object, *_: object, **__: object) -> None:
        """Finds modules inside a pickled object."""
        if asked_by_user() and any(map(_holds_module, [saved, *items_of(saved)])):
            self._files.append(File("module", caller(), detail=type(saved).__name__))

    def _is_resumable(self, saved: dict[Any, Any]) -> bool:
        """Are there weights and a step counter but no score, while an optimizer has state worth keeping?"""
        scheduled = any(map(is_scheduler_state, saved.values()))
        if not scheduled and any(str(key).lower().split("_")[-1].startswith(_SCORES) for key in saved):
            return False  # the best weights so far, kept for use
        weights = any(is_weights(value) for value in saved.values())
        counts = any(map(_is_counter, counts_in(saved)))
        return counts and weights and any(optimizer.state for optimizer in self.scene.stepped)

    def file_loaded(self, contents: Contents) -> None:
        items = list(contents.value.values()) if isinstance(contents.value, dict) else []
        asked = asked_by_user()
        if asked:  # a framework that reads its own file restores what is needed
            self._read = contents.weights
            items = list(contents.items)
        states = [each for each in items if is_optimizer_state(each) and each["state"]]
        groups = states[0]["param_groups"] if states else []
        scheduler = any(map(is_scheduler_state, items))
        if groups or scheduler:
            self._loaded.append(_Loaded(caller(), groups, scheduler, self.scene.updates, contents.weights.prints))

    def _is_given(self, optimizer: Optimizer, *_: object, **__: object) -> None:
        self._before_given = _rates(optimizer)

    def _restores_optimizer(self, _: object, optimizer: Optimizer, *__: object, **___: object) -> None:
        read = any(each.groups for each in self._loaded)
        if optimizer.state or not (read or self._keeps_state(optimizer)):
            self._given_state.append(optimizer)
        elif asked_by_user() and self._keeps_state(optimizer):
            self._files.append(File("unrestored-optimizer", caller(), detail="its own was empty"))
        if self.scene.updates_of(optimizer):
            return  # it returned to an earlier state and may continue freely
        if asked_by_user() or self._before_given != _rates(optimizer):  # some wrappers load a state of their own
            groups = optimizer.param_groups
            if any(each["lr"] != each.get("initial_lr", each["lr"]) for each in groups):
                self._midway.add(optimizer)
            self._rates[optimizer] = _rates(optimizer), caller()

    def _restores_scheduler(self, *_: object, **__: object) -> None:
        self._restored.add(LRScheduler)

    def _keeps_state(self, optimizer: Optimizer) -> bool:
        """Has another optimizer of this class had a state?"""
        return any(type(each) is type(optimizer) and each.state for each in self.scene.stepped if each is not optimizer)

    def update_begins(self, optimizer: Optimizer) -> None:
        """If the learning rate jumps between loading and the first update, a new scheduler has set it."""
        self._goes_on(optimizer)
        loaded = self._rates.pop(optimizer, None)
        if loaded is None:
            return
        rates = _rates(optimizer)
        first = [group.get("initial_lr") for group in optimizer.param_groups]
        if optimizer in self._midway and self._schedules.begins(optimizer):
            detail = f"the rate in the file is {loaded[0][0]:.3g}, of a schedule in progress, which starts over"
            self._files.append(File("unrestored-scheduler", loaded[1], detail=detail))
            return
        if rates != loaded[0] and self._schedules.begins_by_hand(optimizer, rates[0]):
            detail = f"the rate in the file is {loaded[0][0]:.3g}, but the one set by hand starts over"
            self._files.append(File("unrestored-scheduler", loaded[1], detail=detail))
            return
        from_file = any(each.groups for each in self._loaded)
        begins_anew = rates == first or (from_file and None not in first and LRScheduler not in self._restored)
        if begins_anew and rates != loaded[0]:
            detail = f"the rate is {loaded[0][0]:.3g} in the file, {rates[0]:.3g} in the first update"
            self._files.append(File("unrestored-scheduler", loaded[1], detail=detail))

    def _goes_on(self, optimizer: Optimizer) -> None:
        """Does a new optimizer make its first update on the weights of a loaded file?"""
        if not self._loaded or self.scene.updates_of(optimizer):
            return
        own = fingerprints(varying(filter(readable, held(optimizer))))
        for loaded in self._loaded:
            if own and 2 * sum(each in loaded.prints for each in own) >= len(own):
                loaded.going_on.append(optimizer)
                if not optimizer.state and not self._rows.are_others(self.scene.training):
                    loaded.empty.append(optimizer)

    def facts(self) -> Iterator[SavedStateFacts]:
        yield SavedStateFacts(files=tuple(self._lacking()))

    def _lacking(self) -> Iterator[File]:
        schedulers = any(each.calls for each in self._schedules.seen.values())
        yield from self._files
        for where, update, to_go_on in self._bare if not self._whole else ():
            if self.scene.updates > update or to_go_on:  # else it is the result of training
                yield File("without-optimizer", where)
        for loaded in self._loaded:
            given = any(is_same(each, other) for each in loaded.going_on for other in self._given_state)
            if loaded.groups and not given:
                if any(goes_on(each, loaded.groups) for each in loaded.empty):
                    yield File("unrestored-optimizer", loaded.where)
                continue
            put_back = self._restored or self._schedules.is_put_forward()
            if loaded.going_on and loaded.scheduler and schedulers and not put_back:
                yield File("unrestored-scheduler", loaded.where, detail="the file holds its state")


def _is_counter(name: str) -> bool:
    """Does a name say how far training is? `epochs` and `max_steps` are settings instead."""
    words = set(name.lower().split("_"))
    return not words.isdisjoint(_COUNTS) and words.isdisjoint(_SETTINGS)


def _is_best(file: object) -> bool:
    """Is this a file of the best weights, by its name or because a new record writes it?"""
    return "best" in str(file).lower() or any(sets_record(*line) for line in user_lines())


def _is_to_go_on(saved: dict[Any, Any], file: object) -> bool:
    """Does a file hold a schedule, or does its name say checkpoint?"""
    return any(map(is_scheduler_state, saved.values())) or any(word in str(file).lower() for word in _CHECKPOINTS)


def _rates(optimizer: Optimizer) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


def _holds_module(value: object) -> bool:
    """Is this a module, or an object with a module among its attributes?"""
    inside = vars(value).values() if hasattr(value, "__dict__") and not isinstance(value, type | torch.Tensor) else ()
    return isinstance(value, nn.Module) or any(isinstance(each, nn.Module) for each in inside)


def _is_same_memory(one: torch.Tensor, other: Any) -> bool:
    return readable(one) and readable(other) and one.numel() > 0 and one.data_ptr() == other.data_ptr()


def _saved_buffers(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The floating-point buffers in a state_dict."""
    saved = model.state_dict(keep_vars=True)
    yield from ((n, b) for n, b in model.named_buffers() if n in saved and b.is_floating_point() and readable(b))


def _prints(named: dict[str, torch.Tensor]) -> dict[str, int]:
    return dict(zip(named, fingerprints(named.values()), strict=True))


def _is_wrapped(value: Any) -> bool:
    """Do these weights have the names they have inside a wrapper?"""
    return is_weights(value) and all(str(name).startswith(_WRAPPERS) for name in value)
