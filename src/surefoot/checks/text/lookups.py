"""Finds the tokens that a forward looks up in embeddings, and repeats it with others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from surefoot.checks.engine.rerun import Again
from surefoot.checks.engine.scene import own
from surefoot.checks.engine.types import Args, Function

_MOST_MARKS = 256


@dataclass
class Text:
    """Rows of tokens that enter a model. They are replaced where they are looked up, so masks made from them stay."""

    tokens: torch.Tensor
    numbers: tuple[int, ...] = ()
    """Which lookups of the forward these are."""
    step_by_step: bool = False
    """Each of those lookups is one column."""
    place: int | None = None
    """Which input they are, if no lookup is seen."""
    table: torch.Tensor | None = None
    padding: int | None = None
    """The `padding_idx` of the embedding."""
    marks: list[torch.Tensor] = field(default_factory=list)
    """Booleans and whole numbers, one for each token, that the forward computed."""

    counted: bool = False
    """The model also looks up positions that run through the whole text."""
    turned: bool = False
    """The rows are columns for the model."""

    def turn(self) -> Text:
        """The same text, transposed."""
        marks = [each.t() for each in self.marks]
        return replace(self, tokens=self.tokens.t(), marks=marks, turned=not self.turned)

    def swapped(self, again: Again, tokens: torch.Tensor, *, training: bool = False) -> list[torch.Tensor]:
        """The outputs for other tokens."""
        tokens = tokens.t() if self.turned else tokens
        if self.place is not None:
            return again({self.place: tokens}, training=training)
        columns = tokens.unbind(1) if self.step_by_step else [tokens] * len(self.numbers)
        with _Lookups(dict(zip(self.numbers, columns, strict=True))):
            return again(training=training)


class _Lookup(NamedTuple):
    tokens: torch.Tensor
    table: torch.Tensor | None
    padding: int | None


class _Lookups(TorchFunctionMode):
    """Hears every lookup, and replaces the tokens of some."""

    def __init__(self, swapped: Mapping[int, torch.Tensor] | None = None) -> None:
        super().__init__()
        self.swapped = swapped or {}
        self.found: list[_Lookup] = []
        self.marks: list[torch.Tensor] = []

    def __torch_function__(self, func: Function, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        place = _place_of_tokens(func, args)
        if place is None:
            out = func(*args, **kwargs)
            self._mark(out)
            return out
        tokens = args[place]
        table = next((each for each in args if isinstance(each, torch.Tensor) and each is not tokens), None)
        new = self.swapped.get(len(self.found))
        self.found.append(_Lookup(own(tokens), table, kwargs.get("padding_idx")))
        if new is not None and new.numel() == tokens.numel():
            args = (*args[:place], new.reshape(tokens.shape).to(tokens.device, tokens.dtype), *args[place + 1 :])
        return func(*args, **kwargs)

    def _mark(self, out: object) -> None:
        if type(out) is not torch.Tensor or out.is_floating_point() or out.is_complex():
            return
        if len(self.marks) < _MOST_MARKS and 1 < out.dim() <= 4 and out.numel() >= 8:
            self.marks.append(own(out))


def _place_of_tokens(func: Function, args: Args) -> int | None:
    """Which argument of a function holds the tokens to look up; None if it looks nothing up."""
    name = getattr(func, "__name__", "")
    place = 0 if func is F.embedding or name == "one_hot" else 1 if name in ("embedding", "__getitem__") else None
    if place is None or len(args) <= place or not isinstance(args[place], torch.Tensor):
        return None
    if name == "__getitem__" and not (isinstance(args[0], nn.Parameter) and args[0].dim() >= 2):
        return None
    tokens = args[place]
    return None if tokens.is_floating_point() or tokens.dtype == torch.bool else place


def texts_of(again: Again) -> list[Text]:
    """Everything that a model looks up in rows, except positions and token types."""
    with _Lookups() as seen:
        again()
    texts: list[Text] = []
    for number, (tokens, table, padding) in enumerate(seen.found):
        alike = next((each for each in texts if each.tokens.equal(tokens)), None)
        if alike is not None:
            alike.numbers += (number,)
        elif _is_text(tokens):
            texts.append(Text(tokens, (number,), table=table, padding=padding))
    texts += _step_by_step(seen.found)
    for text in texts:
        text.marks = _beside(seen.marks, text.tokens.shape)
        text.counted = any(_counts_places(each.tokens, text.tokens.shape[1]) for each in seen.found)
    return texts


def marks_of(again: Again, shape: torch.Size) -> list[torch.Tensor]:
    """Booleans and whole numbers that a forward computed for each place of rows of this shape."""
    with _Lookups() as seen:
        again()
    return _beside(seen.marks, shape)


def _step_by_step(found: list[_Lookup]) -> list[Text]:
    """Tokens that are looked up one column at a time, as by decoders in a loop."""
    columns: dict[tuple[int, int], list[int]] = {}
    for number, each in enumerate(found):
        if each.tokens.dim() in (1, 2) and each.tokens.numel() == len(each.tokens):
            columns.setdefault((id(each.table), each.tokens.numel()), []).append(number)
    texts = []
    for numbers in columns.values():
        if len(numbers) >= 4:
            rows, first = torch.stack([found[n].tokens.flatten() for n in numbers], 1), found[numbers[0]]
            if _is_text(rows):
                texts.append(Text(rows, tuple(numbers), True, table=first.table, padding=first.padding))
    return texts


def _is_text(tokens: torch.Tensor) -> bool:
    """Are these rows of whole numbers, with more than two different ones, that do not just count up?"""
    if tokens.dim() != 2 or max(tokens.shape) < 4 or tokens.unique().numel() < 3:
        return False
    return not any(bool((each.diff() == 1).all()) for each in (tokens, tokens.t()) if each.shape[1] > 1)


def _counts_places(tokens: torch.Tensor, length: int) -> bool:
    """Are these the positions of this many tokens, from 0 on?"""
    rows = tokens.reshape(-1, tokens.shape[-1]) if tokens.dim() else tokens.reshape(1, 1)
    return rows.shape[1] == length and bool((rows == torch.arange(length, device=rows.device)).all())


def _beside(marks: list[torch.Tensor], shape: torch.Size) -> list[torch.Tensor]:
    """The marks that have one number for each place of rows of this shape."""
    flat = [each.squeeze() for each in marks if each.numel() == shape.numel()]
    return [each if each.shape == shape else each.t() for each in flat if each.shape in (shape, shape[::-1])]
