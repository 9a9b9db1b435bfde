"""Clip: the gradients' total norm, cut to a maximum after they are unscaled and divided by the count."""

from collections.abc import Iterable

import torch


def clip(parameters: Iterable[torch.nn.Parameter], max_norm: float | None) -> torch.Tensor | None:
    """Clips in place and returns the norm before clipping; does nothing without a maximum."""
    if max_norm is None:
        return None
    return torch.nn.utils.clip_grad_norm_(parameters, max_norm)


def total_norm(parameters: Iterable[torch.nn.Parameter]) -> torch.Tensor:
    """The norm that `clip` would return, without clipping: one pass over the gradients, for logging."""
    return torch.nn.utils.get_total_norm([each.grad for each in parameters if each.grad is not None])


def norm_after(norm: torch.Tensor, max_norm: float | None) -> torch.Tensor:
    """The norm after clipping, from the norm before it: no second pass."""
    if max_norm is None:
        return norm
    return norm * (max_norm / (norm + 1e-6)).clamp(max=1.0)  # as torch's clip_grad_norm_ multiplies
