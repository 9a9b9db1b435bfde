"""Text probes: tokens are replaced, later ones, earlier ones, masked ones, and the outputs of the others compared."""

from __future__ import annotations

import torch

from surefoot.checks.evidence import Probe, Sequence
from surefoot.probes.again import CHANGED, Again, change, redrawn
from surefoot.probes.tokens import align, best_shift, keeps_one_token, mask_of
from surefoot.witness.calls import Captured
from surefoot.witness.losses import Losses


def disturb_text(
    found: Probe,
    again: Again,
    place: int,
    base: list[torch.Tensor],
    tokens: torch.Tensor,
    sequence: Sequence | None,
    losses: Losses,
) -> bool:
    """What a model does when its tokens are replaced; gives whether time is the first dimension."""
    counted = _counted(tokens, losses, again.call)
    turned = _time_first(tokens, sequence, losses, again.call)
    _causality(found, again, place, base, counted, turned=turned)
    if sequence is not None and sequence.shift == 0 and max(found.future, found.past) < CHANGED:
        turned = True  # unshifted targets do not tell which dimension is time; the one along which tokens matter is
        _causality(found, again, place, base, counted, turned=turned)
    found.softmax_over_queries = losses.softmax_over_queries if found.future > CHANGED else ""
    _padding(found, again, place, base, tokens)
    _documents(found, again, place, base, tokens)
    return turned


def _time_first(tokens: torch.Tensor, sequence: Sequence | None, losses: Losses, call: Captured) -> bool:
    """Do the targets say that the first dimension is time?"""
    if sequence is None or sequence.shift is None:
        return False
    for loss, target, ignored in losses.targets:
        rows = align(tokens, target, ignored)
        if loss.backward == call.backward and rows is not None and rows.shape == tokens.shape:
            return best_shift(tokens, rows, ignored)[1] < 0.9
    return False


def _per_token(outputs: list[torch.Tensor], tokens: torch.Tensor, *, turned: bool) -> list[torch.Tensor]:
    """The outputs that have one row per token, as (samples, time, features)."""
    rows, length = tokens.shape
    found = []
    for each in outputs:
        if each.dim() == 2 and each.shape[0] == rows * length:
            each = each.view(rows, length, -1)
        if each.dim() >= 3 and tuple(each.shape[:2]) == (rows, length):
            found.append(each.transpose(0, 1) if turned else each)
    return found


def _counted(tokens: torch.Tensor, losses: Losses, call: Captured) -> torch.Tensor:
    """The positions whose logits have a target; a prefix without any may see what it likes."""
    counted = torch.ones_like(tokens, dtype=torch.bool)
    for loss, target, ignored in losses.targets:
        rows = align(tokens, target, ignored)
        if loss.backward == call.backward and rows is not None:
            counted[:, : rows.shape[1]] = rows != ignored
            counted[:, rows.shape[1] :] = False
            break
    return counted


def _causality(
    found: Probe, again: Again, place: int, base: list[torch.Tensor], counted: torch.Tensor, *, turned: bool
) -> None:
    """Later tokens are replaced, and earlier logits compared; and the other way round."""
    counted = counted.t() if turned else counted
    tokens = again.inputs[place]
    if tokens.unique().numel() < 2:
        return
    sequence = tokens.t() if turned else tokens
    length = sequence.shape[1]
    for training in (False, True):
        before = _per_token(again(training=training) if training else base, tokens, turned=turned)
        for cut in {length // 2 + 1} if training else sorted({max(1, length // 3), length // 2 + 1, length - 1}):
            new = sequence.clone()
            new[:, cut:] = redrawn(new[:, cut:], tokens, 5)
            after = _per_token(again({place: new.t() if turned else new}, training=training), tokens, turned=turned)
            for a, b in zip(before, after, strict=True):
                change = (a - b)[:, :cut][counted[:, :cut]].abs()
                found.future = max(found.future, float(change.max() / (a.std() + 1e-9)) if change.numel() else 0.0)
    cut = length // 2
    new = sequence.clone()
    new[:, :cut] = redrawn(new[:, :cut], tokens, 6)
    after = _per_token(again({place: new.t() if turned else new}), tokens, turned=turned)
    for a, b in zip(_per_token(base, tokens, turned=turned), after, strict=True):
        found.past = max(found.past, float((a - b)[:, cut:].abs().max() / (a.std() + 1e-9)))


def _padding(found: Probe, again: Again, place: int, base: list[torch.Tensor], tokens: torch.Tensor) -> None:
    """What stands at masked positions is replaced, and the outputs at the others compared."""
    mask = mask_of(again.call, tokens)
    if mask is None or tokens.unique().numel() < 3:
        return
    new = tokens.clone()
    new[~mask] = redrawn(new[~mask], tokens[mask], 9)
    after = again({place: new})
    for a, b in zip(_per_token(base, tokens, turned=False), _per_token(after, tokens, turned=False), strict=True):
        found.padding = max(found.padding, float((a - b).abs()[mask].max() / (a.std(correction=0) + 1e-9)))
    for a, b in zip(base, after, strict=True):
        if a.dim() == 2 and a.shape[0] == tokens.shape[0]:
            found.padding = max(found.padding, change(a, b))
    if keeps_one_token(tokens, mask):
        found.inverted_mask = _sees_only(again, place, base, tokens, mask)


def _sees_only(again: Again, place: int, base: list[torch.Tensor], tokens: torch.Tensor, mask: torch.Tensor) -> bool:
    """Do samples change with the tokens behind the first that a mask keeps, and not with those that it drops?"""
    rows = mask[:, 1:].any(1)
    largest = []
    for wanted in (mask, ~mask):
        changed = wanted.clone()
        changed[:, 0] = False
        new = tokens.clone()
        new[changed] = redrawn(new[changed], tokens[~changed], 10)
        pairs = zip(base, again({place: new}), strict=True)
        whole = [(a[rows], b[rows]) for a, b in pairs if a.dim() >= 2 and a.shape[0] == len(tokens)]
        firsts = [(a[:, 0], b[:, 0]) if a.shape[1] == tokens.shape[1] else (a, b) for a, b in whole]
        largest.append(max((change(a, b) for a, b in firsts), default=0.0))
    return largest[1] < CHANGED / 10 and largest[0] > CHANGED


def _start_again(row: torch.Tensor) -> bool:
    """Are these positions: counted from 0 on by ones, and at least once from 0 again?"""
    if row.is_floating_point() or row.dtype == torch.bool or len(row) < 4 or int(row[0]):
        return False
    again, goes_on = row[1:] == 0, row[1:] == row[:-1] + 1
    return bool((again | goes_on).all()) and bool(again.any()) and int(row.max()) >= 2


def _documents(found: Probe, again: Again, place: int, base: list[torch.Tensor], tokens: torch.Tensor) -> None:
    """Where positions start again inside a row, what stands before must not matter behind."""
    positions = next((each for each in again.inputs if each.shape == tokens.shape and _start_again(each[0])), None)
    if positions is None or tokens.unique().numel() < 3:
        return
    starts = (positions[0, 1:] == 0).nonzero()
    cut = int(starts[-1]) + 1
    new = tokens.clone()
    new[0, :cut] = redrawn(new[0, :cut], tokens, 13)
    after = _per_token(again({place: new}), tokens, turned=False)
    for a, b in zip(_per_token(base, tokens, turned=False), after, strict=True):
        found.documents = max(found.documents, float((a[0, cut:] - b[0, cut:]).abs().max() / (a.std() + 1e-9)))
