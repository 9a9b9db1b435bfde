"""Rows of packed documents for a program that takes plain tokens: each document is run alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from surefoot.exports.plain_call import MASK, TOKENS

Answer = Callable[[tuple[Any, ...], dict[str, Any]], Any]
"""What a program returns for the arguments of a call."""


def holds_packed(kwargs: dict[str, Any]) -> bool:
    """Whether a call has a mask that says for each two tokens of a row whether one sees the other."""
    mask = kwargs.get(MASK)
    return TOKENS in kwargs and isinstance(mask, torch.Tensor) and mask.dim() == 4 and mask.dtype == torch.bool


def documents_apart(answer: Answer, kwargs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The logits of rows. A document begins where a token does not see the one before it."""
    rows = []
    for tokens, seen in zip(kwargs[TOKENS], kwargs[MASK][:, 0], strict=True):
        documents = tokens.tensor_split(begins_in(seen))
        rows.append(torch.cat([_logits(answer, each[None]) for each in documents], dim=1))
    return {"logits": torch.cat(rows)}


def begins_in(seen: torch.Tensor) -> list[int]:
    """Where documents after the first begin in a row, by what each of its tokens sees."""
    begins: list[int] = ((~seen.diagonal(-1)).nonzero().flatten() + 1).tolist()
    return begins


def _logits(answer: Answer, tokens: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = answer((), {TOKENS: tokens, MASK: torch.ones_like(tokens)})["logits"]
    return found
