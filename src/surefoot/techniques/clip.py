"""Clip: the gradients' total norm, cut to a maximum after they are unscaled and divided by the count."""

from collections.abc import Iterable

import torch


def clip(parameters: Iterable[torch.nn.Parameter], max_norm: float | None) -> torch.Tensor:
    """The gradients' total norm; where it is above a maximum, the gradients are scaled down to it in place."""
    gradients = [each.grad for each in parameters if each.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    if max_norm is not None:
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


def norm_after(norm: float, max_norm: float | None) -> float:
    """The norm that `clip` leaves behind, by torch's own formula."""
    return norm if max_norm is None else norm * min(1.0, max_norm / (norm + 1e-6))
