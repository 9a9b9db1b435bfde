"""Consolidate: the whole tensors of a model whose shards lie on many ranks."""

from __future__ import annotations

import torch
from torch.distributed.tensor import DTensor


def whole_tensors(model: torch.nn.Module, *, keep: bool) -> dict[str, torch.Tensor]:
    """Every tensor of the model's state under one name, whole and on the processor, on the ranks that `keep` them.

    All ranks call it. Tensors are put together one at a time, so that a rank that keeps none never has more than one.
    """
    found: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, value in sorted(model.state_dict(keep_vars=True).items()):
        if not isinstance(value, torch.Tensor) or id(value) in seen:
            continue
        seen.add(id(value))
        tensor = value.detach()
        tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if keep:
            found[name.replace("_orig_mod.", "")] = tensor.cpu().contiguous()
    return found
