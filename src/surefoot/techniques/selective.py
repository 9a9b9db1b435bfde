"""Selective: which results of a block are kept while the rest of it is recomputed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy

from surefoot.torch_inside.operators import private

aten = torch.ops.aten

KEPT = frozenset(
    {
        private("_scaled_dot_product_flash_attention_for_cpu").default,
        private("_scaled_dot_product_flash_attention").default,
        private("_scaled_dot_product_efficient_attention").default,
        private("_scaled_dot_product_cudnn_attention").default,
        aten.convolution.default,
    }
)
"""Operators whose results `selective` always keeps."""

EVERY_SECOND = frozenset(
    {
        aten.mm.default,
        aten.addmm.default,
        private("_scaled_mm").default,
        private("_grouped_mm").default,
        aten.linear.default,
    }
)
"""Operators of which `selective` keeps every second result in a block, starting with the first, as torchtitan does.

Batched products are not included: in attention without a fused kernel they make the full score matrix.
"""


def policy() -> Callable[..., CheckpointPolicy]:
    """A policy that decides whether to keep an operator's result. Forward and recomputation count products alike."""
    products: Counter[bool] = Counter()

    def kept_or_not(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        kept = operator in KEPT
        if operator in EVERY_SECOND:
            products[context.is_recompute] += 1
            kept = products[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return kept_or_not
