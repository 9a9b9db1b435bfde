"""Measures what an update loses where weights are kept in half precision."""

from __future__ import annotations

from collections.abc import Mapping

import torch

HALVES = (torch.float16, torch.bfloat16)
_FEWEST, _STILL, _SLIGHT = 16, 0.9, 0.01
"""A parameter is stuck if most of at least 16 elements do not change although its gradient is of ordinary size."""


def lost_share(counts: Mapping[torch.Tensor, tuple[int, int]]) -> float:
    """The share of elements with a gradient that did not change."""
    moving, stayed = (sum(each) for each in zip(*counts.values(), strict=True))
    return stayed / max(1, moving)


def lost(now: torch.Tensor, before: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """How many elements of a parameter have a gradient, and how many of these did not change."""
    moves = torch.zeros_like(now, dtype=torch.bool) if now.grad is None else now.grad != 0
    return moves.sum(), (moves & (now == before)).sum()


def standing_still(
    counts: Mapping[torch.Tensor, tuple[int, int]], sizes: Mapping[torch.Tensor, float]
) -> list[torch.Tensor]:
    """Parameters that barely changed although their gradients are of ordinary size."""
    usual = float(torch.tensor([sizes[each] for each in counts]).median())
    return [
        each
        for each, (moving, stayed) in counts.items()
        if moving >= _FEWEST and stayed > _STILL * moving and sizes[each] > _SLIGHT * usual
    ]
