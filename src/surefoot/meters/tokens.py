"""Tokens: counts the tokens or samples that the model was trained on, at its inputs.

If the first tensor passed to the model holds integers, every element is a token. Otherwise samples are counted. A
forward without gradients is not counted.
"""

from __future__ import annotations

from typing import Any

import torch

from surefoot.events.phases import Phases
from surefoot.meters.journal import Journal
from surefoot.meters.meter import Meter
from surefoot.records.tally import Account
from surefoot.trees import tensors_in


class TokensMeter(Meter):
    """Books `tokens/trained`, or `samples/trained` for a model that is not given tokens."""

    def __init__(self, phases: Phases, journal: Journal | None = None) -> None:
        self.phases, self.book = phases, self if journal is None else journal
        self._counted: dict[str, int] = {}

    def forward_ends(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = next(tensors_in([args, kwargs]), None)
        if given is None or self.phases.segment.name != "forward":
            return
        integers = not given.dtype.is_floating_point and given.dtype is not torch.bool
        if integers:
            self.book.count_tokens("tokens", given.numel())
        else:
            self.book.count_tokens("samples", len(given) if given.dim() else 1)

    def count_tokens(self, unit: str, amount: int) -> None:
        """Adds tokens or samples."""
        self._counted[unit] = self._counted.get(unit, 0) + amount

    def accounts(self) -> list[Account]:
        counted = self._counted or {"tokens": 0}
        booked = [Account(f"{unit}/trained", amount, unit) for unit, amount in counted.items()]
        self._counted = {}
        return booked
