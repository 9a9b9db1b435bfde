"""Writes one log row for every update of your own loop."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from surefoot.events.listener import Listener
from surefoot.events.phases import Phases
from surefoot.meters.process_memory import held_bytes
from surefoot.meters.tokens import TokensMeter
from surefoot.records.log import LogRow
from surefoot.torch_inside.modes import aside
from surefoot.torch_inside.patches import patch

if TYPE_CHECKING:
    from typing_extensions import Self

CROWD = 50
"""How many rows are written together if reading a loss must wait for the device."""


class Rows(Listener):
    """Passes every row to `write`, while entered. A row's loss is the sum of the losses that backward started from.

    A loss that a `GradScaler` scaled counts without the scale. Unknown values, for example the gradient norm, are None.
    """

    def __init__(
        self, phases: Phases, write: Callable[[LogRow], None], *, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self.write, self.now = write, now
        self._tokens = TokensMeter(phases)
        self._began: float | None = None
        self._updates, self._data_seconds = 0, 0.0
        self._losses: list[torch.Tensor | None] = []
        self._scaled: tuple[weakref.ref[torch.Tensor], torch.Tensor | None] | None = None
        self._waiting: list[tuple[LogRow, list[torch.Tensor | None]]] = []

    def __enter__(self) -> Self:
        def make(plain: Any) -> Any:
            def followed(scaler: Any, outputs: Any) -> Any:
                scaled = plain(scaler, outputs)
                if isinstance(scaled, torch.Tensor):
                    self._scaled = weakref.ref(scaled), _copy(outputs)
                return scaled

            return followed

        self._restore = patch(torch.amp.GradScaler, "scale", make)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()
        self._write()

    def forward_begins(self, model: torch.nn.Module) -> None:
        if self._began is None:
            self._began = self.now()

    def forward_ends(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._tokens.forward_ends(model, args, kwargs)

    def batch_fetched(self, seconds: float) -> None:
        if self._began is not None:
            self._data_seconds += seconds

    def backward_begins(self, losses: Any) -> None:
        loss = losses[0] if isinstance(losses, list | tuple) and len(losses) == 1 else losses
        scaled, self._scaled = self._scaled, None
        self._losses.append(scaled[1] if scaled is not None and scaled[0]() is loss else _copy(loss))

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        moment, group = self.now(), optimizer.param_groups[0]
        self._updates += 1
        device = group["params"][0].device
        row = LogRow(
            step=self._updates,
            loss=None,
            grad_norm=None,
            clipped_norm=None,
            lr=float(group["lr"]),
            tokens=int(self._tokens.accounts()[0].amount),
            samples=None,
            samples_digest="",
            updated=True,
            seconds=moment - (moment if self._began is None else self._began),
            data_seconds=self._data_seconds,
            memory_bytes=held_bytes(device),
        )
        self._waiting.append((row, self._losses))
        self._losses, self._data_seconds, self._began = [], 0.0, moment
        if device.type == "cpu" or len(self._waiting) >= CROWD:
            self._write()

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        for row, losses in waiting:
            self.write(replace(row, loss=_sum(losses)))


def _copy(loss: Any) -> torch.Tensor | None:
    """A copy of a loss, without its graph and without a sync. None if it is not a single number."""
    if type(loss) is not torch.Tensor or loss.numel() != 1:
        return None
    with aside():
        return loss.clone()


def _sum(losses: list[torch.Tensor | None]) -> float | None:
    known = [each.item() for each in losses if each is not None]
    return sum(known) if known and len(known) == len(losses) else None
