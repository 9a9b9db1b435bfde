"""Clip: the gradients' total norm, cut to a maximum after they are unscaled and divided by the count."""

from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.tensor import DTensor


def clip(parameters: Iterable[torch.nn.Parameter], max_norm: float | None) -> torch.Tensor:
    """The gradients' total norm over all ranks; where it is above a maximum, they are scaled down to it in place."""
    parameters = [each for each in parameters if each.grad is not None]
    kinds: dict[Any, list[torch.Tensor]] = {}
    for each in parameters:
        kinds.setdefault(_mesh(each.grad), []).append(each.grad)
    norms = [_whole(torch.nn.utils.get_total_norm(gradients)) for gradients in kinds.values()]
    norm = norms[0] if len(norms) == 1 else torch.nn.utils.get_total_norm(norms)
    if max_norm is not None:
        for kind in kinds:
            torch.nn.utils.clip_grads_with_norm_(
                [each for each in parameters if _mesh(each.grad) == kind], max_norm, norm
            )
    return norm


def _mesh(gradient: torch.Tensor) -> Any:
    """torch takes tensors together only if they are spread over the same ranks in the same dimensions."""
    return gradient.device_mesh if isinstance(gradient, DTensor) else None


def _whole(norm: torch.Tensor) -> torch.Tensor:
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def norm_after(norm: float, max_norm: float | None) -> float:
    """The norm that `clip` leaves behind, by torch's own formula."""
    return norm if max_norm is None else norm * min(1.0, max_norm / (norm + 1e-6))
