"""Tokens: counts the tokens that the model was trained on, at its inputs.

If the first tensor passed to the model holds integers, every element is a token. Otherwise every sample
counts as one. A forward without gradients is not counted.
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
    """Books `tokens/trained`."""

    def __init__(self, phases: Phases, journal: Journal | None = None) -> None:
        self.phases, self.book = phases, self if journal is None else journal
        self._counted = 0

    def forward_ends(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = next(tensors_in([args, kwargs]), None)
        if given is None or self.phases.segment.name != "forward":
            return
        integers = not given.dtype.is_floating_point and given.dtype is not torch.bool
        self.book.count_tokens(given.numel() if integers else len(given) if given.dim() else 1)

    def count_tokens(self, amount: int) -> None:
        """Adds tokens."""
        self._counted += amount

    def accounts(self) -> list[Account]:
        booked = [Account("tokens/trained", self._counted, "tokens")]
        self._counted = 0
        return booked
