"""The call that an export is made for: a language model takes plain tokens, however training packed them."""

from __future__ import annotations

from typing import Any

import torch

from surefoot.exports.example_call import Call, example_call
from surefoot.exports.outputs import tensors
from surefoot.recipe.recipe import Recipe
from surefoot.world.world import World

TOKENS, MASK = "input_ids", "attention_mask"
OF_TRAINING = (TOKENS, MASK, "labels", "position_ids")
"""Arguments that a plain call has in another form, or not at all."""


def plain_call(recipe: Recipe, whole: torch.nn.Module, model: torch.nn.Module, world: World) -> Call:
    """The first call of a network in the recipe's loss, in the form in which others call it, with two rows or more.

    A call of a language model of transformers passes its tokens, and a mask with a number for each token if the loss
    passes any mask. Positions and masks of packed documents, and labels, belong to training.
    """
    call = example_call(recipe, whole, model, world)
    plain = _of_tokens(model, call)
    return _with_rows(model, call if plain is None else plain)


def _of_tokens(model: torch.nn.Module, call: Call) -> Call | None:
    """The plain call of a language model; None if it is none, or does not take one."""
    its: Any = model
    is_text = getattr(its, "main_input_name", "") == TOKENS and not its.config.is_encoder_decoder
    given = dict(zip((TOKENS,), call.args, strict=False)) | call.kwargs
    tokens = given.get(TOKENS)
    if not is_text or len(call.args) > 1 or not isinstance(tokens, torch.Tensor) or tokens.dim() != 2:
        return None
    mask = {} if given.get(MASK) is None else {MASK: _mask(given[MASK], tokens)}
    others = {name: each for name, each in given.items() if name not in OF_TRAINING}
    plain = Call((), {TOKENS: tokens, **mask, **others})
    try:
        output = plain.of(model)
    except Exception:  # a model may refuse an input in any way
        return None
    logits = tensors(output).get("logits")
    return plain if logits is not None and logits.dim() == 3 else None


def _mask(given: Any, tokens: torch.Tensor) -> torch.Tensor:
    """A mask of tokens as it was given, or one with padding at the end of the last row, so that it is compared."""
    if isinstance(given, torch.Tensor) and given.dim() == 2:
        return given
    mask = torch.ones_like(tokens)
    mask[-1, tokens.shape[1] - tokens.shape[1] // 4 :] = 0
    return mask


def _with_rows(model: torch.nn.Module, call: Call) -> Call:
    """torch.export fixes a batch of one, so the example has its row twice if the network takes that."""
    if call.batch_size != 1:
        return call
    wider = call.with_two_rows()
    try:
        found = [each for each in tensors(wider.of(model)).values() if each.dim()]
    except Exception:  # a model may refuse an input in any way
        return call
    return wider if found and all(len(each) == 2 for each in found) else call
