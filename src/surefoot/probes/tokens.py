"""Tokens: how the targets of a loss lie beside the tokens that entered the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from surefoot.checks.evidence import Loss, Sequence
from surefoot.phases import aside
from surefoot.witness.calls import Captured
from surefoot.witness.scene import Scene, tensors

_SHIFTS = (1, 0, 2, -1, 3)


def sequences_of(
    scene: Scene, captured: Iterable[Captured], targets: list[tuple[Loss, torch.Tensor, int]]
) -> Iterator[Sequence]:
    """For every token model whose loss was seen, how its targets lie beside its inputs."""
    for call in captured:
        tokens = tokens_of(call)
        if tokens is None:
            continue
        for loss, target, ignored in targets:
            if loss.backward != call.backward or target.is_floating_point():
                continue
            with aside():
                aligned = align(tokens, target, ignored)
                if aligned is not None:
                    yield _compare(scene.name(call.model), call, loss, tokens, aligned, ignored)
                    break


def tokens_of(call: Captured) -> torch.Tensor | None:
    """The tokens that entered a model: its first tensor, if it holds whole numbers in rows."""
    first = next((each for each in tensors((call.args, call.kwargs)) if each.dim() >= 1 and each.numel() > 1), None)
    if first is None or first.is_floating_point() or first.dim() != 2 or first.dtype == torch.bool:
        return None
    return first if min(first.shape) >= 1 and max(first.shape) >= 4 else None


def mask_of(call: Captured, tokens: torch.Tensor) -> torch.Tensor | None:
    """The mask that came with the tokens: of the same shape, with zeros and ones."""
    for each in tensors((call.args, call.kwargs)):
        if each is not tokens and each.shape == tokens.shape:
            values = set(each.unique().tolist())
            if values == {0, 1}:
                return each.bool()
    return None


def keeps_one_token(tokens: torch.Tensor, mask: torch.Tensor) -> bool:
    """Behind the first column, does a mask keep hardly more than one token, which it never drops, and drop the text?"""
    kept, dropped = tokens[:, 1:][mask[:, 1:]], tokens[:, 1:][~mask[:, 1:]]
    if not kept.numel() or dropped.unique().numel() < 3:
        return False
    commonest = kept.mode().values
    return bool((kept == commonest).float().mean() > 0.7) and not bool((dropped == commonest).any())


def align(tokens: torch.Tensor, target: torch.Tensor, ignored: int) -> torch.Tensor | None:
    """Targets in the rows of the tokens, or None where their number does not fit."""
    rows, length = tokens.shape
    if target.shape == tokens.shape:
        return target
    each, rest = divmod(target.numel(), rows)
    if rest or each not in (length, length - 1) or each < 4:
        return None
    return target.reshape(rows, each)


def best_shift(tokens: torch.Tensor, target: torch.Tensor, ignored: int) -> tuple[int | None, float]:
    """The offset at which most valid targets equal a token, and the share that does."""
    best: tuple[int | None, float] = (None, 0.0)
    for shift in _SHIFTS:
        low, high = max(0, -shift), min(target.shape[1], tokens.shape[1] - shift)
        if high - low < 2:
            continue
        wanted, there = target[:, low:high], tokens[:, low + shift : high + shift]
        valid = wanted != ignored
        if int(valid.sum()) >= 4:
            match = float((wanted[valid] == there[valid]).float().mean())
            if match > best[1] + 1e-6:
                best = shift, match
    return best


def _compare(
    model: str, call: Captured, loss: Loss, tokens: torch.Tensor, target: torch.Tensor, ignored: int
) -> Sequence:
    shift, match = best_shift(tokens, target, ignored)
    distinct = tokens.unique().numel()
    if match < 0.9 and min(tokens.shape) >= 4 and target.shape == tokens.shape:
        turned = best_shift(tokens.t(), target.t(), ignored)
        shift, match = turned if turned[1] >= 0.9 else (shift, match)
    found = Sequence(model, loss.where, shift if match >= 0.9 and distinct > 2 else None, match, distinct)
    mask, lengths = mask_of(call, tokens), _by_lengths(call, tokens)
    padded, found.padding_seen_by = (
        (~mask, "a mask")
        if mask is not None
        else (lengths, "lengths")
        if lengths is not None
        else (padded_ends(tokens), "runs at the ends")
    )
    if loss.reduction in ("mean", "sum") and padded is not None and 0 < int(padded.sum()) < padded.numel():
        offset = found.shift if found.shift is not None and found.shift > 0 else 0
        if target.shape[1] < tokens.shape[1]:
            offset = max(offset, 1)
        reach = min(target.shape[1], tokens.shape[1] - offset)
        counted = (target[:, :reach] != ignored) & padded[:, offset : offset + reach]
        found.padding_counted = int(counted.sum())
    found.ends_ignored = _ignored_end(call, tokens, target, ignored, mask)
    return found


def _by_lengths(call: Captured, tokens: torch.Tensor) -> torch.Tensor | None:
    """Padding by the lengths that came with the tokens: a whole number for each row, at most as many as there are."""
    rows, longest = tokens.shape
    for each in tensors((call.args, call.kwargs)):
        counts = each.shape == (rows,) and not each.is_floating_point()
        if counts and int(each.max()) == longest and int(each.min()) > 0:
            padded = torch.arange(longest) >= each.cpu()[:, None]
            return padded if tokens.cpu()[padded].unique().numel() == 1 else None
    return None


def padded_ends(tokens: torch.Tensor) -> torch.Tensor | None:
    """Padding without a mask: a token that only stands at the ends of rows, in runs of different lengths."""
    last = tokens[:, -1]
    for value in last.unique().tolist():
        is_value = tokens == value
        run = is_value.flip(1).long().cumprod(1).flip(1).bool()
        lengths = run.sum(1)
        long = lengths[lengths >= 2]
        if bool((is_value == run).all()) and long.numel() >= 2 and long.unique().numel() >= 2:
            return run
    return None


def _stands_between(tokens: torch.Tensor, token: int) -> bool:
    """Does a token stand alone between others, in a quarter of the rows and not only at their ends, as padding does?"""
    here, before, after = tokens[:, 1:-1] == token, tokens[:, :-2] != token, tokens[:, 2:] != token
    return 4 * int((here & before & after).any(1).sum()) >= len(tokens)


def _ignored_end(
    call: Captured, tokens: torch.Tensor, target: torch.Tensor, ignored: int, mask: torch.Tensor | None
) -> int | None:
    """An end token, known by the model's config or by being the padding too, that inputs hold and no target does."""
    if _stands_between(tokens, ignored) and best_shift(tokens, target, ignored)[0] == 1:
        return ignored
    config: Any = getattr(call.model, "config", None)
    end = getattr(config, "eos_token_id", None)
    if mask is not None and not isinstance(end, int):
        padding = tokens[~mask]
        lasts = tokens[torch.arange(tokens.shape[0]), mask.long().cumsum(1).argmax(1)]
        lasts = lasts[~mask.all(1)]
        alike = padding.unique().numel() == 1 and lasts.numel() >= 2 and bool((lasts == padding[0]).all())
        end = int(padding[0]) if alike else None
    if not isinstance(end, int):
        return None
    attended = tokens[:, 1:] if mask is None else tokens[torch.arange(len(tokens)), mask.long().cumsum(1).argmax(1)]
    valid = target[target != ignored]
    counted = bool((attended == end).any()) and valid.numel() > 0 and valid.numel() < target.numel()
    return end if counted and not bool((valid == end).any()) else None
