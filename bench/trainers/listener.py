"""Listener: hears of every micro-batch, update and step of a trainer, whichever it is."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from surefoot import Recipe
from surefoot.trees import tensors_in


@dataclass(frozen=True)
class Trained:
    """What a trainer has made: the model of the recipe, and torch's own optimizer."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer


class Listener(Protocol):
    """What a trainer tells."""

    def step_ended(self, step: int) -> None:
        """So many steps have been taken since the run began."""


class Witness:
    """Writes down what each step was made of, and ends the process when the step after `stop` begins."""

    def __init__(self, answer: Path, stop: int | None) -> None:
        self.answer, self.stop, self.last = answer, stop, -1
        self._row: dict[str, Any] = {}
        self._forget()
        register_optimizer_step_pre_hook(self._update_begins)

    def watched(self, recipe: Recipe) -> Recipe:
        """The recipe with a loss that is heard of."""

        def loss(model: torch.nn.Module, batch: Any) -> Any:
            self._die_in_time()
            made = recipe.loss(model, batch)
            total = made[0] if isinstance(made, tuple) else made
            self._row["data"].append(digest(tensors_in(batch)))
            self._row["losses"].append(total.item().hex())
            return made

        return replace(recipe, loss=loss)

    def step_ended(self, step: int) -> None:
        self.last = step
        self._write({"step": step, **self._row})
        self._forget()

    def finished(self, trained: Trained) -> None:
        state = trained.optimizer.state_dict()
        weights = dict(sorted(trained.model.state_dict().items()))
        self._write({"weights": digest(weights.values()), "optimizer": digest_of_state(state)})

    def failed(self, error: BaseException) -> None:
        self._write({"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"})

    def _update_begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        gradients = [each.grad for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
        self._row["norm"] = torch.nn.utils.get_total_norm(gradients).item().hex()
        self._row["lr"] = float(optimizer.param_groups[0]["lr"]).hex()

    def _die_in_time(self) -> None:
        if self.stop is not None and self.last >= self.stop:
            os._exit(0)

    def _forget(self) -> None:
        self._row = {"data": [], "losses": []}

    def _write(self, row: dict[str, Any]) -> None:
        with self.answer.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def digest(tensors: Any) -> str:
    """Sixteen hex digits for the bits of some tensors."""
    made = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        made.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        made.update(tensor.detach().contiguous().flatten().view(torch.uint8).numpy())
    return made.hexdigest()


def digest_of_state(state: dict[str, Any]) -> str:
    """The same for an optimizer's state dict: its tensors, numbers and learning rates."""
    made = hashlib.blake2b(digest_size=8)

    def read(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            made.update(digest([value]).encode())
        elif isinstance(value, dict):
            for key in sorted(value, key=str):
                made.update(str(key).encode())
                read(value[key])
        elif isinstance(value, list | tuple):
            for each in value:
                read(each)
        else:
            made.update(repr(value).encode())

    read(state["state"])
    read([{"lr": group["lr"]} for group in state["param_groups"]])
    return made.hexdigest()


Train = Callable[[Recipe, Any, Listener], Trained]
