"""Attention of packed documents: each attends to itself, without a matrix of every two tokens of a row.

A model of transformers gets the document numbers in place of a mask, with four dimensions, as it takes a mask that is
made already. They reach the attention function, which knows by their format what they are. On CUDA it calls torch's
kernel for sequences of different lengths, elsewhere the usual one for each document. Only the loss passes numbers: a
call that is recorded for other models, as exports do, has a matrix.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from inspect import getsource, signature
from itertools import groupby
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from surefoot.world import cuda

NAME = "surefoot_documents"
"""Of the attention function, in transformers' register."""
USUAL = "sdpa"
_TOLD_BY = "set_attn_implementation"
"""The method by which a model of transformers is told its attention."""
_OTHER_SCORES = ("position_bias", "softcap", "s_aux", "cache")
"""Arguments that change the scores, or hold tokens of another time."""
_HALVES = (torch.float16, torch.bfloat16)
_WIDEST = 256
"""The widest head that flash attention takes."""
_AMPERE = (8, 0)
"""The compute capability that flash attention needs."""
_always_matrix = ContextVar("_always_matrix", default=False)


@dataclass(frozen=True)
class Lengths:
    """How many tokens each document of a batch has, in its order, and where they begin."""

    each: list[int]
    starts: Tensor


@contextmanager
def as_matrix() -> Iterator[None]:
    """While it lasts, every mask is a matrix, which any model takes."""
    before = _always_matrix.set(True)
    try:
        yield
    finally:
        _always_matrix.reset(before)


def mask_of(model: nn.Module, documents: Tensor, *, causal: bool = True) -> Tensor:
    """The mask of a batch for a model: document numbers if it can do with them, else a matrix for each row."""
    if _always_matrix.get() or not _takes_documents(model):
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
    apart: Callable[..., Tensor], module: nn.Module, query: Tensor, key: Tensor, value: Tensor,
    attention_mask: Tensor | None, dropout: float = 0.0, scaling: float | None = None, is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """The attention function: `apart` for document numbers, and torch's own for every other mask."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if attention_mask is None or not holds_documents(attention_mask):
        return _usual(module, query, key, value, attention_mask, dropout, scaling, is_causal, **kwargs)
    if any(kwargs.get(name) is not None for name in _OTHER_SCORES):
        matrix = same_document(attention_mask[:, 0, 0], causal=causal)
        return _usual(module, query, key, value, matrix, dropout, scaling, is_causal, **kwargs)
    window = kwargs.get("sliding_window") if causal else None
    return apart(query, key, value, attention_mask, scaling, dropout, causal=causal, window=window), None


def _apart(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None, dropout: float, *,
    causal: bool, window: int | None,
) -> Tensor:  # fmt: skip
    """The attention of every document of a batch."""
    lengths = vars(mask).get("lengths") or _lengths(mask)
    groups = query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(groups, dim=1) if groups > 1 else each for each in (key, value))
    rows, tokens = query.shape[0], query.shape[2]
    q, k, v = (each.transpose(1, 2).flatten(0, 1) for each in (query, key, value))
    if dropout == 0.0 and _has_kernel(query, key, value) and (window is None or _kernel_knows("window_size")):
        out = by_kernel(q, k, v, lengths, scaling, causal=causal, window=window)
    else:
        out = one_by_one(q, k, v, lengths, scaling, dropout, causal=causal, window=window)
    return out.unflatten(0, (rows, tokens))


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
    found: list[Any] = [each for each in model.modules() if hasattr(type(each), _TOLD_BY)]
    kinds = {type(each) for each in found}
    if not found or not all(_leaves_masks_alone(kind) for kind in kinds):  # type: ignore[arg-type]  # a class has a hash
        return False
    if found[0].config._attn_implementation == USUAL and _registered():
        found[0].set_attn_implementation(NAME)
    return all(each.config._attn_implementation == NAME for each in found)


@cache
def _leaves_masks_alone(kind: type) -> bool:
    """Whether a class passes masks to the attention function, whatever that is called.

    Some add to a mask, or make another one, if attention is called `sdpa`. Such a name stands in their source.
    """
    own = [each for each in kind.__mro__ if hasattr(each, _TOLD_BY) and _TOLD_BY not in vars(each)]
    try:
        sources = [getsource(sys.modules[each.__module__]) for each in own]
    except (KeyError, OSError, TypeError):
        return False
    return getattr(kind, "_supports_attention_backend", False) and not any(f'"{USUAL}"' in each for each in sources)


@cache
def _registered() -> bool:
    """Registers `attend`, with the masks of torch's own attention. False if transformers is too old for it."""
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError:
        return False
    apart = torch.compiler.disable(_apart)  # lengths of documents differ from batch to batch
    AttentionInterface.register(NAME, partial(attend, apart))
    AttentionMaskInterface.register(NAME, AttentionMaskInterface()[USUAL])
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
        and cuda.capability(query.device) >= _AMPERE
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
