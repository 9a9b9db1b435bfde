"""How many numbers a language model keeps for each text it goes on from: its keys and values."""

from __future__ import annotations

import logging
from typing import Any

import torch

from surefoot.errors import RunError, first_line
from surefoot.exports.decode import Cache, logits_of
from surefoot.exports.transformers_text import is_its_model


def cache_numbers(model: torch.nn.Module, *, batch: int, context: int) -> int:
    """The elements of all keys and values of a batch with a full context. The tensors may be fake."""
    tokens = torch.zeros(batch, context, dtype=torch.int64)
    if is_its_model(model):
        its: Any = model
        layers = its(tokens, use_cache=True).past_key_values.layers
        return sum(each.keys.numel() + each.values.numel() for each in layers)
    with Cache() as cache:
        logits_of(_called(model, tokens))
    if not cache.kept or not cache.suits:
        raise RunError(
            "the model does not attend through scaled_dot_product_attention(..., is_causal=True), so surefoot does not "
            "know its keys and values"
        )
    return sum(key.numel() + value.numel() for key, value in cache.kept)


def _called(model: torch.nn.Module, tokens: torch.Tensor) -> Any:
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)  # torch logs a stack if shapes do not meet; the sentence below says it
    try:
        return model(tokens)
    except Exception as error:  # the model's own code
        raise RunError(
            f"the model cannot be called with tokens alone, so it makes no text: {first_line(error)}"
        ) from error
    finally:
        logging.disable(level)


def numbers_read(model: torch.nn.Module) -> int:
    """The elements of the weights that each token needs. Of an embedding that nothing else uses, that is one row."""
    tables = {id(each.weight) for each in model.modules() if isinstance(each, torch.nn.Embedding)}
    others = {
        id(each)
        for module in model.modules()
        if not isinstance(module, torch.nn.Embedding)
        for each in module.parameters(recurse=False)
    }
    return sum(each.numel() for each in model.parameters() if id(each) in others or id(each) not in tables)
