"""Syncs: where the host reads the value of a tensor, and so waits for the device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from surefoot.events.callers import asked_inside, caller
from surefoot.events.listener import Segment
from surefoot.events.phases import Phases
from surefoot.meters.meter import Meter
from surefoot.records.tally import Account
from surefoot.torch_inside.operators import private
from surefoot.world.device import accelerator

aten = torch.ops.aten
ASKING = {private("_local_scalar_dense"), aten.item, aten.equal, aten.is_nonzero, aten.nonzero, aten.masked_select}
"""`.item()`, `float()`, `if tensor:`, `torch.equal`, and results whose size depends on values."""
OWN = "surefoot"
"""The name for syncs of the trainer itself: whether the loss is finite."""


_PACKING = private("_pack_padded_sequence")


class SyncsMeter(Meter):
    """Books `syncs/PHASE/FILE:LINE`, a count.

    A CPU never waits. There, a read counts if the value was computed from trained parameters: on an accelerator, the
    host would wait for it. Lengths and targets of a batch do not count.
    """

    def __init__(self, phases: Phases) -> None:
        self.phases = phases
        self._computed = WeakTensorKeyDictionary()
        self._counted: Counter[tuple[Segment, str]] = Counter()
        self._in_optimizer = self._in_loader = False

    def fetch_begins(self) -> None:
        self._in_loader = True

    def batch_fetched(self, seconds: float) -> None:
        self._in_loader = False

    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        self._in_optimizer = True  # the optimizer reads counters that it keeps on the host

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        self._in_optimizer = False

    def operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if any(map(self._is_computed, _tensors((*args, *kwargs.values())))):
            made = out[:1] if func.overloadpacket is _PACKING else (out,)  # not the sizes of a packed sequence
            self._computed.update((each, True) for each in _tensors(made))
        if func.overloadpacket not in ASKING or self._in_optimizer or not self._on_the_device(args[0]):
            return
        if not asked_inside("torch.distributions"):  # it validates its arguments
            self._counted[self.phases.now(), Path(caller()).name or OWN] += 1

    def accounts(self) -> list[Account]:
        booked = [
            Account(f"syncs/{each.name}/{where}", times, "times") for (each, where), times in self._counted.items()
        ]
        self._counted.clear()
        return booked

    def _is_computed(self, tensor: torch.Tensor) -> bool:
        return tensor.requires_grad or tensor in self._computed

    def _on_the_device(self, tensor: torch.Tensor) -> bool:
        """Whether the host would wait for its value."""
        device = accelerator()
        if device is None:
            return not self._in_loader and self._is_computed(tensor)
        return bool(tensor.device.type == device.type)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for each in values:
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, (tuple, list)):
            yield from _tensors(each)
