"""NEFTune: noise on the embeddings of a training step, as transformers adds it (https://arxiv.org/abs/2310.05914)."""

from __future__ import annotations

import functools
import math
from typing import Any

from torch import Tensor, nn

from surefoot.errors import RecipeError


def add_noise(model: nn.Module, alpha: float) -> None:
    """Adds uniform noise to the input embeddings of a model in training mode: at most alpha / sqrt(tokens x width)."""
    inside: Any = model.get_base_model() if hasattr(model, "peft_config") else model  # type: ignore[operator]
    try:
        embeddings: Any = inside.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        embeddings = None
    if not isinstance(embeddings, nn.Module):
        raise RecipeError(f"neftune adds noise to embeddings of tokens, and {type(model).__name__} has none")
    embeddings.register_forward_hook(functools.partial(_noisy, alpha))


def _noisy(alpha: float, module: nn.Module, _: Any, output: Tensor) -> Tensor:
    if not module.training:
        return output
    most = alpha / math.sqrt(output.size(1) * output.size(2))
    return output + output.new_zeros(output.shape).uniform_(-most, most)
