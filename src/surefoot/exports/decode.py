"""Tokens from a language model, one after the other, with a cache of keys and values where the model allows it.

A model that takes `start`, the number of tokens before those it is given, and that attends through torch's
`scaled_dot_product_attention` needs nothing else to be cached: while tokens are made, the keys and values of every
such call are kept and put before the new ones. Any other model reads the whole text again for each token.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from surefoot.errors import RunError, first_line


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. With temperature 0 it is the likeliest."""

    temperature: float = 0.8
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def picker(self) -> Callable[[torch.Tensor], int]:
        """A function from logits to a token. It has a random generator of its own."""
        generator = torch.Generator().manual_seed(self.seed)

        def pick(logits: torch.Tensor) -> int:
            if self.temperature == 0:
                return int(logits.argmax())
            chances = self._chances(logits.float().cpu() / self.temperature)
            return int(torch.multinomial(chances, 1, generator=generator))

        return pick

    def _chances(self, logits: torch.Tensor) -> torch.Tensor:
        if self.top_k is not None and self.top_k < len(logits):
            least = logits.topk(self.top_k).values[-1]
            logits = logits.masked_fill(logits < least, -torch.inf)
        chances = logits.softmax(-1)
        if self.top_p is not None:
            ordered, places = chances.sort(descending=True)
            beyond = ordered.cumsum(0) - ordered >= self.top_p  # the first one always stays
            chances = chances.index_fill(0, places[beyond], 0.0)
        return chances


class Cache(TorchFunctionMode):
    """Keeps the keys and values of every attention of a model, in the order of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.calls = 0
        self.suits = True
        """False if an attention is not plainly causal: then what it saw before cannot be kept."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            return self._attend(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **more: Any,
    ) -> torch.Tensor:
        self.suits &= is_causal and attn_mask is None
        place, self.calls = self.calls, self.calls + 1
        if place == len(self.kept):
            self.kept.append((key, value))
            return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, **more)
        before = self.kept[place]
        key, value = torch.cat((before[0], key), dim=-2), torch.cat((before[1], value), dim=-2)
        self.kept[place] = key, value
        return F.scaled_dot_product_attention(query, key, value, **more)  # one query, which sees all of them


class Decoder:
    """Endless tokens after a prompt. When the context is full, its older half is forgotten."""

    def __init__(
        self,
        model: torch.nn.Module,
        prompt: Sequence[int],
        *,
        context: int,
        pick: Callable[[torch.Tensor], int],
        cached: bool = True,
    ) -> None:
        if not prompt:
            raise RunError("the prompt is empty; give it at least one token to go on from")
        self._model, self._context, self._pick = model, context, pick
        self._seen, self._first = list(prompt), max(0, len(prompt) - context)
        self._may_cache = cached and _takes_start(model)
        self._cache: Cache | None = None

    @property
    def is_cached(self) -> bool:
        """Whether the last token was made from keys and values that were kept."""
        return self._cache is not None

    def __iter__(self) -> Iterator[int]:
        while True:
            if len(self._seen) - self._first > self._context:
                self._first, self._cache = len(self._seen) - max(1, self._context // 2), None
            logits = self._read() if self._cache is None else self._next(self._cache)
            self._seen.append(self._pick(logits[0, -1]))
            yield self._seen[-1]

    def put(self, most: int, ends: Container[int], put: Callable[[int], None]) -> None:
        """Hands on each token, until one that ends the text, or `most` of them."""
        for token in islice(self, most):
            put(token)
            if token in ends:
                break

    def _read(self) -> torch.Tensor:
        """The logits of the whole text in the context. Begins the cache."""
        tokens = _row(self._model, self._seen[self._first :])
        with Cache() if self._may_cache else nullcontext() as cache:
            try:
                output = self._model(tokens)
            except Exception as error:  # a model may refuse an input in any way
                raise RunError(
                    f"the model does not take tokens alone, so it makes no text: {first_line(error)}"
                ) from error
        logits = logits_of(output)
        self._cache = cache if cache is not None and cache.suits and cache.kept else None
        return logits

    def _next(self, cache: Cache) -> torch.Tensor:
        """The logits after one token more."""
        cache.calls = 0
        with cache:
            return logits_of(self._model(_row(self._model, self._seen[-1:]), start=len(self._seen) - 1 - self._first))


def _takes_start(model: torch.nn.Module) -> bool:
    """Whether a model can be told how many tokens precede those it is given."""
    return "start" in inspect.signature(model.forward).parameters


def logits_of(output: Any) -> torch.Tensor:
    """The logits that a model returns, alone or by that name."""
    found = getattr(output, "logits", output)
    if not isinstance(found, torch.Tensor) or found.dim() != 3:
        raise RunError("the model does not return logits of (batch, tokens, vocabulary), so it makes no text")
    return found


def _row(model: torch.nn.Module, tokens: list[int]) -> torch.Tensor:
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    return torch.tensor([tokens], device=device)
