"""Files: what is saved, what is loaded, and which of it is put back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from surefoot.checks.evidence import File
from surefoot.phases import caller
from surefoot.witness.scene import Part, Scene

_SCORES = ("acc", "score", "metric", "f1", "iou", "bleu")
_COUNTERS = ("epoch", "step", "iter", "iteration", "global_step", "iters", "steps", "epochs")


class Files(Part):
    """State on its way to a file and back."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._files: list[File] = []
        self._loaded: list[tuple[str, bool, bool, int]] = []
        self._restored: set[type] = set()
        self._rates: dict[Optimizer, tuple[list[float], str]] = {}

    def __enter__(self) -> Files:
        self.follow(nn.Module, "load_state_dict", before=self._loads_weights)
        self.follow(Optimizer, "load_state_dict", after=self._restores_optimizer)
        for kind in vars(lr_scheduler).values():
            if isinstance(kind, type) and issubclass(kind, LRScheduler) and "load_state_dict" in vars(kind):
                self.follow(kind, "load_state_dict", after=self._restores_scheduler)
        self.follow(torch, "save", before=self._saves)
        self.follow(torch, "load", after=self._reads)
        return self

    def _loads_weights(self, module: nn.Module, state: Any, strict: bool = True, *_: Any, **kwargs: Any) -> None:
        own = dict(module.named_parameters())
        if strict or not own:
            return
        names = set(state)
        matched = sum(each.numel() for name, each in own.items() if name in names)
        tensors = [each for each in state.values() if isinstance(each, torch.Tensor)]
        self._files.append(
            File(
                "loose-load",
                caller(),
                matched=matched,
                wanted=sum(each.numel() for each in own.values()),
                found=sum(each.numel() for each in tensors),
                detail=next(iter(sorted(names - set(own))), ""),
            )
        )

    def _saves(self, saved: Any, file: Any = "", *_: Any, **__: Any) -> None:
        items = list(saved.values()) if isinstance(saved, dict) else [saved]
        if any(isinstance(each, nn.Module) for each in [saved, *items]):
            self._files.append(File("module", caller(), detail=type(saved).__name__))
        to_resume = isinstance(saved, dict) and self._is_resumable(saved) and "best" not in str(file).lower()
        if to_resume and not any(map(_is_optimizer_state, items)):
            self._files.append(File("without-optimizer", caller()))

    def _is_resumable(self, saved: dict[Any, Any]) -> bool:
        """Weights beside a counter of steps and no score, while an optimizer has a state worth keeping."""
        if any(str(key).lower().split("_")[-1].startswith(_SCORES) for key in saved):
            return False  # the best weights so far, kept for use
        counts = any(str(key).lower() in _COUNTERS and isinstance(value, int) for key, value in saved.items())
        weights = any(_is_weights(value) for value in saved.values())
        return counts and weights and any(optimizer.state for optimizer in self.scene.stepped)

    def _reads(self, loaded: Any, *_: Any, **__: Any) -> None:
        items = list(loaded.values()) if isinstance(loaded, dict) else []
        optimizer, scheduler = any(map(_is_optimizer_state, items)), any(map(_is_scheduler_state, items))
        if optimizer or scheduler:
            self._loaded.append((caller(), optimizer, scheduler, self.scene.updates))

    def _restores_optimizer(self, _: Any, optimizer: Optimizer, *__: Any, **___: Any) -> None:
        self._restored.add(Optimizer)
        if any(holds_optimizer for _, holds_optimizer, *_ in self._loaded):  # some wrappers load a state of their own
            self._rates[optimizer] = [float(group["lr"]) for group in optimizer.param_groups], caller()

    def _restores_scheduler(self, *_: Any, **__: Any) -> None:
        self._restored.add(LRScheduler)

    def update_begins(self, optimizer: Optimizer) -> None:
        """A rate that jumps between the restored optimizer and its first update was set by a new scheduler."""
        loaded = self._rates.pop(optimizer, None)
        if loaded is None or LRScheduler in self._restored:
            return
        rates = [float(group["lr"]) for group in optimizer.param_groups]
        scheduled = all("initial_lr" in group for group in optimizer.param_groups)
        if scheduled and rates != loaded[0]:
            detail = f"{loaded[0][0]:.3g} in the file, {rates[0]:.3g} in the first update"
            self._files.append(File("unrestored-scheduler", loaded[1], detail=detail))

    def files(self, *, schedulers: bool) -> Iterator[File]:
        yield from self._files
        for where, optimizer, scheduler, made in self._loaded:
            if self.scene.updates <= made:
                continue
            if optimizer and Optimizer not in self._restored:
                yield File("unrestored-optimizer", where)
            elif scheduler and schedulers and LRScheduler not in self._restored:
                yield File("unrestored-scheduler", where, detail="the file holds its state")


def _is_optimizer_state(value: Any) -> bool:
    return isinstance(value, dict) and {"state", "param_groups"} <= set(value)


def _is_scheduler_state(value: Any) -> bool:
    return isinstance(value, dict) and "last_epoch" in value


def _is_weights(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(each, torch.Tensor) for each in value.values())
