"""Attention of packed documents: each attends to itself, without a matrix of every two tokens of a row.

A model of transformers gets the document numbers in place of a mask, with four dimensions, as it takes a mask that is
made already. They reach the attention function, which knows by their format what they are. On CUDA it calls torch's
kernel for sequences of different lengths, elsewhere the usual one for each document.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from inspect import signature
from itertools import groupby
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NAME = "surefoot_documents"
"""Of the attention function, in transformers' register."""
USUAL = "sdpa"
_OTHER_SCORES = ("position_bias", "softcap", "s_aux", "cache")
"""Arguments that change the scores, or hold tokens of another time."""
_HALVES = (torch.float16, torch.bfloat16)
_WIDEST = 256
"""The widest head that flash attention takes."""


@dataclass(frozen=True)
class Lengths:
    """How many tokens each document of a batch has, in its order, and where they begin."""

    each: list[int]
    starts: Tensor


def mask_of(model: nn.Module, documents: Tensor, *, causal: bool = True) -> Tensor:
    """The mask of a batch for a model: document numbers if it can do with them, else a matrix for each row."""
    if not _takes_documents(model):
        return same_document(documents, causal=causal)
    mask = documents[:, None, None, :].clone()
    vars(mask)["lengths"] = _lengths(mask)  # once for all layers: on CUDA it waits for the GPU
    return mask


def same_document(documents: Tensor, *, causal: bool = True) -> Tensor:
    """The matrix of packed documents: a token sees those of its own document, or itself and the ones before it."""
    same = documents[:, None, :, None] == documents[:, None, None, :]
    return same.tril() if causal else same


def holds_documents(mask: Any) -> bool:
    """Whether a mask is document numbers."""
    return isinstance(mask, Tensor) and mask.dim() == 4 and mask.dtype == torch.int64 and mask.shape[1:3] == (1, 1)


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    dropout: float = 0.0, scaling: float | None = None, is_causal: bool | None = None, **kwargs: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """The attention function: as torch's own for every mask that is not document numbers."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if attention_mask is None or not holds_documents(attention_mask):
        return _usual(module, query, key, value, attention_mask, dropout, scaling, is_causal, **kwargs)
    if any(kwargs.get(name) is not None for name in _OTHER_SCORES):
        matrix = same_document(attention_mask[:, 0, 0], causal=causal)
        return _usual(module, query, key, value, matrix, dropout, scaling, is_causal, **kwargs)
    lengths = vars(attention_mask).get("lengths") or _lengths(attention_mask)
    window = kwargs.get("sliding_window") if causal else None
    return _uncompiled(query, key, value, lengths, scaling, dropout, causal=causal, window=window), None


def _apart(
    query: Tensor, key: Tensor, value: Tensor, lengths: Lengths, scaling: float | None, dropout: float, *,
    causal: bool, window: int | None,
) -> Tensor:  # fmt: skip
    """The attention of every document of a batch."""
    groups = query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(groups, dim=1) if groups > 1 else each for each in (key, value))
    rows, tokens = query.shape[0], query.shape[2]
    q, k, v = (each.transpose(1, 2).flatten(0, 1) for each in (query, key, value))
    if dropout == 0.0 and _has_kernel(query, key, value) and (window is None or _kernel_knows("window_size")):
        out = by_kernel(q, k, v, lengths, scaling, causal=causal, window=window)
    else:
        out = one_by_one(q, k, v, lengths, scaling, dropout, causal=causal, window=window)
    return out.unflatten(0, (rows, tokens))


_uncompiled = torch.compiler.disable(_apart)
"""The lengths of documents differ from batch to batch."""


def one_by_one(
    query: Tensor, key: Tensor, value: Tensor, lengths: Lengths, scaling: float | None, dropout: float, *,
    causal: bool, window: int | None,
) -> Tensor:  # fmt: skip
    """The attention of each document, of tensors of tokens, heads and widths."""
    parts = zip(*(each.transpose(0, 1)[None].split(lengths.each, dim=2) for each in (query, key, value)), strict=True)
    made = []
    for q, k, v in parts:
        band = _band(q.shape[2], window, q.device) if window and q.shape[2] > window else None
        plain = causal and band is None
        out = F.scaled_dot_product_attention(q, k, v, band, dropout_p=dropout, is_causal=plain, scale=scaling)
        made.append(out[0].transpose(0, 1))
    return torch.cat(made)


def by_kernel(
    query: Tensor, key: Tensor, value: Tensor, lengths: Lengths, scaling: float | None, *,
    causal: bool, window: int | None,
) -> Tensor:  # fmt: skip
    """The same in one call of torch's kernel for sequences of different lengths."""
    from torch.nn.attention.varlen import varlen_attn

    usual = query.shape[-1] ** -0.5
    if scaling is not None and scaling != usual:
        query = query * (scaling / usual)  # torch 2.10 takes no scale
    given: dict[str, Any] = {}
    if _kernel_knows("window_size"):
        given["window_size"] = (-1 if window is None else window - 1, 0 if causal else -1)
    else:
        given["is_causal"] = causal
    longest = max(lengths.each)
    made: Any = varlen_attn(query, key, value, lengths.starts, lengths.starts, longest, longest, **given)
    return cast(Tensor, made)


def _band(tokens: int, window: int, device: torch.device) -> Tensor:
    """The mask of a document that is longer than the window of a layer."""
    return torch.ones(tokens, tokens, dtype=torch.bool, device=device).tril().triu(1 - window)


def _lengths(mask: Tensor) -> Lengths:
    each = [len(list(same)) for row in mask[:, 0, 0].tolist() for _, same in groupby(row)]
    starts = torch.tensor([0, *each], device=mask.device).cumsum(0).to(torch.int32)
    return Lengths(each, starts)


def _takes_documents(model: nn.Module) -> bool:
    """Whether it computes attention with `attend`; a model with torch's own attention is told to."""
    found: Any = next((each for each in model.modules() if hasattr(each, "set_attn_implementation")), None)
    if found is None or not getattr(found, "_supports_attention_backend", False):
        return False
    if found.config._attn_implementation == USUAL and _registered():
        found.set_attn_implementation(NAME)
    return bool(found.config._attn_implementation == NAME)


@cache
def _registered() -> bool:
    """Registers `attend`, with the masks of torch's own attention. False if transformers is too old for it."""
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask
    except ImportError:
        return False
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return True


def _usual(*args: Any, **kwargs: Any) -> Any:
    from transformers import AttentionInterface

    return AttentionInterface()[USUAL](*args, **kwargs)


def _has_kernel(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether torch has the kernel, and it takes these tensors."""
    alike = query.dtype == key.dtype == value.dtype and query.shape[-1] == value.shape[-1]
    return (
        query.is_cuda
        and alike
        and query.dtype in _HALVES
        and query.shape[-1] % 8 == 0
        and query.shape[-1] <= _WIDEST
        and torch.cuda.get_device_capability(query.device) >= (8, 0)
        and bool(_kernel_arguments())
    )


def _kernel_knows(argument: str) -> bool:
    return argument in _kernel_arguments()


@cache
def _kernel_arguments() -> frozenset[str]:
    """The arguments of `varlen_attn`. None before torch 2.10."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return frozenset()
    return frozenset(signature(varlen_attn).parameters)
