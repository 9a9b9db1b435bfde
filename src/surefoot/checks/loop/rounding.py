"""Measures what an update loses where weights are kept in half precision."""

from __future__ import annotations

from collections.abc import Mapping

import torch

HALVES = (torch.float16, torch.bfloat16)
_FEWEST, _STILL, _SLIGHT = 16, 0.9, 0.01
"""A tensor stands still if so large a share of so many elements or more does, and its gradient is no mere rounding."""


def lost_share(counts: Mapping[torch.Tensor, tuple[int, int]]) -> float:
    """Of all elements with a gradient, the share that stayed as it was."""
    moving, stayed = (sum(each) for each in zip(*counts.values(), strict=True))
    return stayed / max(1, moving)


def lost(now: torch.Tensor, before: torch.Tensor) -> tuple[int, int]:
    """How many elements of a parameter have a gradient, and how many of these stayed as they were."""
    moves = torch.zeros_like(now, dtype=torch.bool) if now.grad is None else now.grad != 0
    return int(moves.sum()), int((moves & (now == before)).sum())


def standing_still(
    counts: Mapping[torch.Tensor, tuple[int, int]], sizes: Mapping[torch.Tensor, torch.Tensor]
) -> list[torch.Tensor]:
    """Parameters of which hardly an element changed, though their gradients are not far below those of the others."""
    usual = float(torch.stack([sizes[each].float() for each in counts]).median())
    return [
        each
        for each, (moving, stayed) in counts.items()
        if moving >= _FEWEST and stayed > _STILL * moving and float(sizes[each]) > _SLIGHT * usual
    ]
