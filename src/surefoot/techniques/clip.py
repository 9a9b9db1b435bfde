"""Clip: the gradients' total norm, cut to a maximum after they are unscaled."""

from collections.abc import Iterable

import torch


def clip(parameters: Iterable[torch.nn.Parameter], max_norm: float | None) -> torch.Tensor | None:
    """Clips in place and returns the norm before clipping; does nothing without a maximum."""
    if max_norm is None:
        return None
    return torch.nn.utils.clip_grad_norm_(parameters, max_norm)
