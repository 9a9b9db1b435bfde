"""Compares the targets of a loss with the tokens that entered the model."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from surefoot.checks.engine.attempts import attempt
from surefoot.checks.engine.captured_call import Captured
from surefoot.checks.engine.rerun import Again
from surefoot.checks.engine.scene import Scene, tensors
from surefoot.checks.facts.text import Sequence
from surefoot.checks.losses.targets import Target, Targets
from surefoot.checks.text.lookups import Text, texts_of
from surefoot.checks.text.padding import ends_of, known_padding, mask_of
from surefoot.randomness import kept
from surefoot.torch_inside.modes import aside

_SHIFTS = (1, 0, 2, -1, 3)
_SURE, _CLEAR = 0.995, 0.05
"""If targets do not all match a shift, no other shift may match nearly as well: neighbours may be alike."""
_BATCHES = 3
"""At least this many batches must end alike before their common end counts as a lost token."""


@dataclass(frozen=True)
class Beside:
    """The targets of a loss, arranged in the rows of a text."""

    text: Text
    target: Target
    values: torch.Tensor
    valid: torch.Tensor
    shift: int | None
    match: float
    leftward: bool = False
    """Another loss predicts the tokens before."""


@dataclass
class Reading:
    """What a model reads, and which target a loss has at each of those tokens."""

    call: Captured
    again: Again | None = None
    texts: list[Text] = field(default_factory=list)
    beside: Beside | None = None
    sequence: Sequence | None = None

    @property
    def text(self) -> Text | None:
        """The text that the targets belong to; without targets, the first."""
        return self.beside.text if self.beside is not None else next(iter(self.texts), None)


def read(scene: Scene, call: Captured, targets: Targets) -> Reading:
    """A call with the texts it reads. Targets belong to the last text whose next, or own, tokens they are."""
    reading = _again(scene, call)
    with aside():
        pairs = itertools.product(targets.of(call.backward), reading.texts)
        besides = [(target, _beside(text, target, call.graded.values())) for target, text in pairs]
        found = [each for target, each in besides if each and (each.shift is not None or target in targets.given)]
        if found:
            best = max(reversed(found), key=lambda each: (each.shift == 1, each.shift is not None))
            leftward = any(each.shift is not None and each.shift - max(_cuts(call, each)) == -1 for each in found)
            shift = None if best.shift is None else best.shift - min(_cuts(call, best))
            best = replace(best, shift=shift, leftward=leftward)
            siblings = [each for each in targets.all() if each.loss.where == best.target.loss.where]
            reading.beside = best
            reading.sequence = _compare(scene.name(call.model), call, best, siblings)
        elif call.columns and (steps := _steps(call, targets)) is not None:
            reading.sequence = _compare(scene.name(call.model), call, steps, [])
    return reading


def _steps(call: Captured, targets: Targets) -> Beside | None:
    """The calls of a model that gets one token of every sample at a time, joined into a text, with their targets."""
    asked = [each for each in targets.of(call.backward) if each.values.shape == call.columns[-1].shape]
    count = min(len(asked), len(call.columns))
    if count < 4 or len({len(each) for each in call.columns}) > 1:
        return None
    values, valid = (torch.stack([getattr(each, name) for each in asked[:count]], 1) for name in ("values", "valid"))
    target = Target(asked[0].loss, values, valid, asked[0].ignored)
    beside = _beside(Text(torch.stack(call.columns[:count], 1)), target)
    return beside if beside is not None and beside.shift is not None else None


def _again(scene: Scene, call: Captured) -> Reading:
    """Repeats the call to see what it looks up; takes its first tokens if no lookup is seen."""
    reading = Reading(call)
    with scene.phases.deaf(), kept(), attempt(f"calling {scene.name(call.model)} again"):
        reading.again = Again(scene, call)
        reading.texts = texts_of(reading.again)
    first = tokens_of(call)
    if not reading.texts and first is not None:
        place = next(place for place, each in enumerate(tensors((call.args, call.kwargs))) if each is first)
        reading.texts = [Text(first, place=place)]
    return reading


def tokens_of(call: Captured) -> torch.Tensor | None:
    """The tokens that entered a model: its first tensor, if it holds whole numbers in rows."""
    first = next((each for each in tensors((call.args, call.kwargs)) if each.dim() >= 1 and each.numel() > 1), None)
    if first is None or first.is_floating_point() or first.dim() != 2 or first.dtype == torch.bool:
        return None
    return first if min(first.shape) >= 1 and max(first.shape) >= 4 else None


def _beside(text: Text, target: Target, graded: Iterable[torch.Tensor] = ()) -> Beside | None:
    """Targets in the rows of the tokens, and which of them count; None if their number does not fit.

    Also None if it fits by chance: the loss uses as many outputs, but from rows of different lengths.
    """
    values, valid, (rows, length) = target.values, target.valid, text.tokens.shape
    if values.is_floating_point():
        return None
    if values.shape != text.tokens.shape:
        each, rest = divmod(values.numel(), rows)
        if rest or each not in (length, length - 1, length - 2) or each < 4:
            return None
        if any(int(used.sum()) == values.numel() and (used.sum(1) != each).any() for used in graded):
            return None
        values, valid = values.reshape(rows, each), valid.reshape(rows, each)
    return Beside(text, target, values, valid, *_shift(text.tokens, values, valid))


def _cuts(call: Captured, beside: Beside) -> set[int]:
    """How many scores at the start of rows the loss skips, if it uses fewer than there are tokens.

    One number for each output with one score per token.
    """
    width, found = beside.valid.shape[1], set()
    for rows in call.graded.values():
        if rows.shape == beside.text.tokens.shape:
            cuts = range(rows.shape[1] - width + 1)
            found.add(next((cut for cut in cuts if rows[:, cut : cut + width].equal(beside.valid)), 0))
    return found or {0}


def best_shift(tokens: torch.Tensor, values: torch.Tensor, valid: torch.Tensor) -> tuple[int | None, float]:
    """The shift at which most valid targets equal a token, and their share."""
    best: tuple[int | None, float] = (None, 0.0)
    matches: dict[int, float] = {}
    for shift in _SHIFTS:
        low, high = max(0, -shift), min(values.shape[1], tokens.shape[1] - shift)
        if high - low < 2:
            continue
        wanted, there = values[:, low:high], tokens[:, low + shift : high + shift]
        counted = valid[:, low:high]
        if int(counted.sum()) >= 4:
            match = matches[shift] = float((wanted[counted] == there[counted]).float().mean())
            if match > best[1] + 1e-6:
                best = shift, match
    beyond = max((match for shift, match in matches.items() if shift != best[0]), default=0.0)
    alike = best[0] not in (None, 0) and best[1] < _SURE and beyond > best[1] - _CLEAR
    return (None, 0.0) if alike else best  # neighbours on both sides are alike


def _shift(tokens: torch.Tensor, values: torch.Tensor, valid: torch.Tensor) -> tuple[int | None, float]:
    """The same, if nearly all targets equal a token. Time may also be the first dimension."""
    shift, match = best_shift(tokens, values, valid)
    if match < 0.9 and min(tokens.shape) >= 4 and values.shape == tokens.shape:
        turned = best_shift(tokens.t(), values.t(), valid.t())
        shift, match = turned if turned[1] >= 0.9 else (shift, match)
    return shift if match >= 0.9 and tokens.unique().numel() > 2 else None, match


def _compare(model: str, call: Captured, beside: Beside, siblings: list[Target]) -> Sequence:
    """How targets are shifted, which count at padded positions, and whether an end token is never a target."""
    tokens, valid = beside.text.tokens, beside.valid
    found = Sequence(model, beside.target.loss.where, beside.shift, beside.match)
    padded, found.padding_seen_by = known_padding(call, beside.text)
    by_ends = found.padding_seen_by == "equal tokens at the ends of rows"
    if by_ends:
        padded = ends_of(_whole(beside), beside.text.padding)
    if padded is not None and 0 < int(padded.sum()) < padded.numel():
        narrower = valid.shape[1] < tokens.shape[1]  # else a target belongs to the token at its own position
        offset = max(beside.shift or 0, int(narrower)) if by_ends or narrower else 0
        reach = min(valid.shape[1], padded.shape[1] - offset)
        asked = padded[:, offset : offset + reach]
        counted = (valid[:, :reach] & asked).sum(1)
        ends_with_padding = by_ends and bool(((counted == 1) & (asked.sum(1) > 1)).any())
        found.padding_counted = 0 if ends_with_padding else int(counted.sum())
    if not found.padding_counted and _is_declared(beside):
        found.padding_counted = sum(_padding_asked_for(beside, each) for each in siblings)
        found.padding_seen_by = "the embedding" if found.padding_counted else found.padding_seen_by
    found.ends_ignored = _ignored_end(call, beside)
    if found.ends_ignored is None and _is_declared(beside):
        found.ends_ignored = _left_out_end(beside, siblings)
    if found.ends_ignored is None and found.shift == 1 and len(siblings) >= _BATCHES:
        found.ends_ignored = _end_among_padding(beside, siblings)
    return found


def _is_declared(beside: Beside) -> bool:
    """Does the embedding of the text name a padding token, and do targets use the same vocabulary?"""
    text, loss = beside.text, beside.target.loss
    return text.padding is not None and text.table is not None and len(text.table) in loss.shape


def _in_rows(beside: Beside, target: Target) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """The targets of a batch, which count, and which are padding; None if padding is not only at the ends."""
    rows = len(target.values) if target.values.dim() == 2 else len(beside.text.tokens)
    if target.values.numel() % rows:
        return None
    values, valid = target.values.reshape(rows, -1), target.valid.reshape(rows, -1)
    padding = values.eq(beside.text.padding or 0)
    padded = ends_of(values, beside.text.padding) if bool(padding.any()) else padding
    return (values, valid, padded) if padded is not None and padded.equal(padding) else None


def _padding_asked_for(beside: Beside, target: Target) -> int:
    """How much padding counts in a batch, in rows that end with more than one padding token: one may be the end."""
    found = _in_rows(beside, target)
    if found is None:
        return 0
    _, valid, padded = found
    longer = padded.sum(1) > 1
    return int((valid & padded)[longer].sum()) if bool((valid | ~padded)[longer].all()) else 0


def _left_out_end(beside: Beside, siblings: list[Target]) -> int | None:
    """The token that every text ends with before its padding, if it never counts and others do."""
    found = [each for target in siblings if (each := _in_rows(beside, target)) is not None]
    last = [values.gather(1, ((~padded).sum(1) - 1).clamp(0)[:, None]) for values, _, padded in found]
    lasts = {token for each in last for token in each.unique().tolist()}
    counted = {token for values, valid, _ in found for token in values[valid].unique().tolist()}
    lost = len(found) >= _BATCHES and len(counted) > 2 and lasts.isdisjoint(counted | {beside.text.padding})
    return int(lasts.pop()) if lost and len(lasts) == 1 and min(lasts) >= 0 else None


def _whole(beside: Beside) -> torch.Tensor:
    """The text with the token that the last target adds, if it adds one."""
    last = beside.values[:, -1:]
    adds = beside.shift == 1 and beside.values.shape == beside.text.tokens.shape and bool((last >= 0).all())
    return torch.cat([beside.text.tokens, last], 1) if adds else beside.text.tokens


def _stands_between(tokens: torch.Tensor, token: int) -> bool:
    """Is a token alone between others in a quarter of the rows, and not only at their ends like padding?"""
    here, before, after = tokens[:, 1:-1] == token, tokens[:, :-2] != token, tokens[:, 2:] != token
    return 4 * int((here & before & after).any(1).sum()) >= len(tokens)


def _ignored_end(call: Captured, beside: Beside) -> int | None:
    """An end token, known from the model's config or because it is also the padding, that is no valid target."""
    tokens, valid, ignored, mask = beside.text.tokens, beside.valid, beside.target.ignored, mask_of(call, beside.text)
    if beside.shift == 1 and _stands_between(tokens, ignored):
        return ignored
    config: Any = getattr(call.model, "config", None)
    end = getattr(config, "eos_token_id", None)
    if mask is not None and not isinstance(end, int):
        padding = tokens[~mask]
        lasts = tokens[torch.arange(len(tokens), device=tokens.device), mask.long().cumsum(1).argmax(1)]
        lasts = lasts[~mask.all(1)]
        alike = padding.unique().numel() == 1 and lasts.numel() >= 2 and bool((lasts == padding[0]).all())
        end = int(padding[0]) if alike else None
    if not isinstance(end, int):
        return None
    attended = (
        tokens[:, 1:]
        if mask is None
        else tokens[torch.arange(len(tokens), device=tokens.device), mask.long().cumsum(1).argmax(1)]
    )
    counted = bool((attended == end).any()) and bool(valid.any()) and not bool(valid.all())
    return end if counted and not bool((beside.values[valid] == end).any()) else None


def _end_among_padding(beside: Beside, siblings: list[Target]) -> int | None:
    """The padding, if in every batch even the longest text is followed by it, and texts end with different tokens.

    Batches are padded to their longest text, so one more padding token that never counts is where the end should be.
    """
    whole = _whole(beside)
    padded = ends_of(whole, beside.text.padding)
    if padded is None or bool(padded[:, 0].any()) or int(padded.sum(1).min()) != 1:
        return None
    padding = int(whole[:, -1][0])
    lasts = whole[torch.arange(len(whole), device=whole.device), (~padded).sum(1) - 1]
    shortest = {_shortest_end(each.valid.reshape(len(whole), -1)) for each in siblings if _fits(each, whole)}
    counted = bool((beside.values[beside.valid] == padding).any())
    lost = lasts.unique().numel() >= 3 and len(shortest) == 1 and not counted
    return padding if lost else None


def _fits(target: Target, tokens: torch.Tensor) -> bool:
    return target.valid.numel() % len(tokens) == 0


def _shortest_end(valid: torch.Tensor) -> int:
    """The fewest targets at the end of a row that do not count."""
    return int((valid.flip(1).long().cumsum(1) == 0).sum(1).min())
