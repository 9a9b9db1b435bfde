"""Reads the texts that a model with weights of somebody's is trained on: their starts, their ends, what bears loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from surefoot.checks.engine.attempts import attempt
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable, tensors
from surefoot.checks.engine.types import Kwargs
from surefoot.checks.facts.text import TextFacts, TrainedText
from surefoot.checks.loop.origins import config_of, origin
from surefoot.checks.losses.loss_calls import Losses
from surefoot.checks.losses.targets import Target
from surefoot.checks.text.rows import Row, are_aligned, is_cut, is_ended, mark_of, starts_of
from surefoot.checks.text.token_targets import best_shift
from surefoot.checks.text.tokenizers_in_sight import decoded, mark_before_answer, template_of, tokenizer_of
from surefoot.events.callers import caller
from surefoot.torch_inside.modes import aside

_MOST_ROWS = 128
_MOST_TOKENS = 1 << 18
_IGNORED = -100
_DECODED = 16


@dataclass
class _Batch:
    """The tokens of one forward, with the mask, labels and positions that came with them."""

    tokens: torch.Tensor
    mask: torch.Tensor | None
    labels: torch.Tensor | None
    positions: torch.Tensor | None
    backward: int


@dataclass
class _Model:
    """A model, and the batches that were read."""

    name: str
    where: str
    origin: str
    config: Any
    tokenizer: Any
    batches: list[_Batch]
    embedding_rows: int
    rows: int = 0
    tokens: int = 0


class TrainedTexts(Observer):
    """Keeps the first batches of token models whose weights came from a folder or repository."""

    after = (Losses,)

    def __init__(self, scene: Scene, losses: Losses) -> None:
        super().__init__(scene)
        self._losses = losses
        self._models: dict[nn.Module, _Model | None] = {}

    def model_returned(self, model: nn.Module, args: object, kwargs: Kwargs, output: object) -> None:
        if not self.scene.close or not torch.is_grad_enabled():
            return
        if model not in self._models:
            self._models[model] = self._found(model)
        known = self._models[model]
        if known is None or known.rows >= _MOST_ROWS or known.tokens >= _MOST_TOKENS:
            return
        with aside():
            batch = _batch_of(args, kwargs, self.scene.backwards)
        if batch is not None:
            known.batches.append(batch)
            known.rows += len(batch.tokens)
            known.tokens += batch.tokens.numel()

    def _found(self, model: nn.Module) -> _Model | None:
        came_from = origin(model)
        tables = [each.num_embeddings for each in model.modules() if isinstance(each, nn.Embedding)]
        if not came_from or not tables:
            return None
        own = getattr(model, "get_input_embeddings", lambda: None)()
        size = own.num_embeddings if isinstance(own, nn.Embedding) else max(tables)
        name = self.scene.name(model)
        return _Model(name, caller(), came_from, config_of(model), tokenizer_of(came_from), [], size)

    def facts(self) -> Iterator[TextFacts]:
        yield TextFacts(trained_texts=tuple(self._texts()))

    def _texts(self) -> Iterator[TrainedText]:
        for each in self._models.values():
            if each is not None and each.batches:
                with aside():
                    rows = [row for batch in each.batches for row in self._rows(batch, each.config) if row.tokens]
                if rows:
                    yield _told(each, rows)

    def _rows(self, batch: _Batch, config: Any) -> Iterator[Row]:
        if getattr(config, "is_encoder_decoder", False) and batch.labels is not None:
            for labels in batch.labels.tolist():
                kept = [token for token in labels if token != _IGNORED]
                yield Row(kept, [True] * len(kept))
            return
        learned = _learned(batch, self._losses.targets.of(batch.backward))
        real = _real(batch, config)
        for number, tokens in enumerate(batch.tokens):
            chosen = real[number]
            places = None if batch.positions is None else batch.positions[number][chosen].tolist()
            bears = None if learned is None else learned[number][chosen].tolist()
            yield from _documents(tokens[chosen].tolist(), bears, places)


def _batch_of(args: object, kwargs: Kwargs, backward: int) -> _Batch | None:
    """The batch of a forward; None if it is given no rows of tokens."""
    tokens = kwargs.get("input_ids")
    if not isinstance(tokens, torch.Tensor):
        whole = (each for each in tensors((args, kwargs)) if each.dtype in (torch.int64, torch.int32))
        tokens = next((each for each in whole if each.dim() == 2), None)
    if not isinstance(tokens, torch.Tensor) or not readable(tokens) or tokens.dim() != 2:
        return None

    def beside(name: str) -> torch.Tensor | None:
        found = kwargs.get(name)
        if not isinstance(found, torch.Tensor) or not readable(found) or found.dim() != 2:
            return None
        return found.detach().cpu().clone() if name == "labels" or found.shape == tokens.shape else None

    parts = beside("attention_mask"), beside("labels"), beside("position_ids")
    return _Batch(tokens.detach().cpu().clone(), *parts, backward)


def _learned(batch: _Batch, targets: list[Target]) -> torch.Tensor | None:
    """Which tokens bear loss: by the labels that the model was given, or by the targets of the loss."""
    if batch.labels is not None:
        return batch.labels != _IGNORED if batch.labels.shape == batch.tokens.shape else None
    rows, length = batch.tokens.shape
    for target in targets:
        width = target.values.numel() / rows
        if target.values.is_floating_point() or width not in (length, length - 1) or width < 4:
            continue
        values, valid = (each.cpu().reshape(rows, int(width)) for each in (target.values, target.valid))
        shift, match = best_shift(batch.tokens, values, valid)
        if shift == 1 and match >= 0.9:
            found = torch.zeros_like(batch.tokens, dtype=torch.bool)
            found[:, 1:] = valid[:, : length - 1]
            return found
    return None


def _real(batch: _Batch, config: Any) -> torch.Tensor:
    """Which tokens are not padding."""
    if batch.mask is not None:
        return batch.mask.bool()
    padding = getattr(config, "pad_token_id", None)
    ends = ends_of(config, None)
    if not isinstance(padding, int) or padding in ends:
        return torch.ones_like(batch.tokens, dtype=torch.bool)
    return batch.tokens != padding


def _documents(tokens: list[int], bears: list[bool] | None, places: list[int] | None) -> Iterator[Row]:
    """The row, or its parts if positions restart in it."""
    begins = [0] if places is None else [n for n, place in enumerate(places) if place == 0 or n == 0]
    for first, end in zip(begins, [*begins[1:], len(tokens)], strict=True):
        yield Row(tokens[first:end], None if bears is None else bears[first:end])


def ends_of(config: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end a text."""
    named = getattr(config, "eos_token_id", None)
    ids = [*(named if isinstance(named, list) else [named]), getattr(tokenizer, "eos_token_id", None)]
    return frozenset(each for each in ids if isinstance(each, int) and each >= 0)


def _told(model: _Model, rows: list[Row]) -> TrainedText:
    ends, size = ends_of(model.config, model.tokenizer), max(len(row.tokens) for row in rows)
    found = TrainedText(model.name, model.where, len(rows), embedding_rows=model.embedding_rows, longest=size)
    found.tokenizer_size = 0 if model.tokenizer is None else len(model.tokenizer)
    found.lengths = len({len(row.tokens) for row in rows})
    start = _start(model)
    if isinstance(start, int) and start not in {*ends, getattr(model.config, "pad_token_id", None)}:
        found.start = _named(model.tokenizer, start)
        found.starts, found.doubled_starts = starts_of(rows, start)
    found.learned = sum(row.any_learned for row in rows)
    if not found.learned:
        return found
    if ends:
        found.end = _named(model.tokenizer, min(ends) if model.tokenizer is None else _end(model, ends))
        found.ended = sum(is_ended(row, ends) for row in rows)
        found.end_read = sum(not ends.isdisjoint(row.tokens[1:]) for row in rows)
        found.end_learned = sum(row.learns(ends) for row in rows)
        found.cut = sum(is_cut(row, size, ends) for row in rows)
    found.aligned = are_aligned(rows)
    found.whole = all(row.learned is not None and all(row.learned[1:]) for row in rows)
    with attempt(f"reading the tokenizer of {model.name}"):
        _marks(model, rows, found)
    return found


def _start(model: _Model) -> Any:
    start = getattr(model.config, "bos_token_id", None)
    return getattr(model.tokenizer, "bos_token_id", None) if start is None else start


def _end(model: _Model, ends: frozenset[int]) -> int:
    end = model.tokenizer.eos_token_id
    return end if end in ends else min(ends)


def _marks(model: _Model, rows: list[Row], found: TrainedText) -> None:
    """What stands before an answer in every row, and what the model's own chat template would write there."""
    tokenizer = model.tokenizer
    if len(rows) < 4:
        return
    special = frozenset(getattr(tokenizer, "all_special_ids", ()))
    mark = mark_of(rows, special - ends_of(model.config, tokenizer))
    if not mark or tokenizer is None:
        found.shared = f"{len(mark)} tokens" if mark else ""
        return
    found.shared = decoded(tokenizer, mark).strip()
    template = template_of(model.origin)
    own = mark_before_answer(tokenizer, template) if template else ""
    texts = ["".join(decoded(tokenizer, row.tokens).split()) for row in rows[:_DECODED]]
    if own and not any("".join(own.split()) in text for text in texts):
        found.own_mark = own


def _named(tokenizer: Any, token: int) -> str:
    return str(token) if tokenizer is None else f"{tokenizer.convert_ids_to_tokens(token)} ({token})"
