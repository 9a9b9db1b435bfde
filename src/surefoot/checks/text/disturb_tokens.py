"""Replaces tokens of a text, and compares the outputs at other positions."""

from __future__ import annotations

from itertools import pairwise

import torch

from surefoot.checks.engine.rerun import Again, change, moved, redrawn
from surefoot.checks.facts.models import LEAKS, Probe
from surefoot.checks.facts.text import Sequence
from surefoot.checks.losses.loss_calls import Losses
from surefoot.checks.text.lookups import Text
from surefoot.checks.text.padding import hides_text, leak
from surefoot.checks.text.token_targets import Beside, Reading, best_shift


def disturb_text(found: Probe, again: Again, reading: Reading, losses: Losses) -> bool:
    """Records how a model reacts to replaced tokens. Returns whether time is the first dimension."""
    text = reading.text
    if text is None:
        return False
    turned = _time_first(reading.beside)
    _causality(found, again, text, reading.beside, turned=turned)
    if reading.sequence is not None and reading.sequence.shift == 0 and max(found.future, found.past) < LEAKS:
        turned = True  # unshifted targets do not say which dimension is time; the one along which tokens matter does
        _causality(found, again, text, reading.beside, turned=turned)
    found.softmax_over_queries = losses.softmax_over_queries if found.future > LEAKS else ""
    for each in reading.texts:
        found.padding = max(found.padding, leak(again, each))
        found.hides_text |= hides_text(
            again, each, next_token=reading.sequence is not None and reading.sequence.shift == 1
        )
        found.ignores_text |= _ignores(again, each)
    _documents(found, again, text, reading.sequence)
    return turned


def _time_first(beside: Beside | None) -> bool:
    """Do the targets say that the first dimension is time?"""
    if beside is None or beside.shift is None or beside.values.shape != beside.text.tokens.shape:
        return False
    return best_shift(beside.text.tokens, beside.values, beside.valid)[1] < 0.9


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


def _counted(tokens: torch.Tensor, beside: Beside | None) -> torch.Tensor:
    """The positions whose logits have a target. A prefix without targets may see anything."""
    if beside is None:
        return torch.ones_like(tokens, dtype=torch.bool)
    counted = torch.zeros_like(tokens, dtype=torch.bool)
    counted[:, : beside.valid.shape[1]] = beside.valid
    return counted


def _causality(found: Probe, again: Again, text: Text, beside: Beside | None, *, turned: bool) -> None:
    """Replaces later tokens and compares earlier logits; then the other way round."""
    tokens, counted = text.tokens, _counted(text.tokens, beside)
    counted = counted.t() if turned else counted
    sequence = tokens.t() if turned else tokens
    length = sequence.shape[1]
    if tokens.unique().numel() < 2:
        return

    def outputs(new: torch.Tensor, *, training: bool = False) -> list[torch.Tensor]:
        return _per_token(text.swapped(again, new.t() if turned else new, training=training), tokens, turned=turned)

    for training in (False, True):
        before = outputs(sequence, training=training)
        for cut in {length // 2 + 1} if training else sorted({max(1, length // 3), length // 2 + 1, length - 1}):
            new = sequence.clone()
            new[:, cut:] = redrawn(new[:, cut:], tokens, 5)
            later = [
                float(by.max()) if (by := moved(a, b)[:, :cut][counted[:, :cut]]).numel() else 0.0
                for a, b in zip(before, outputs(new, training=training), strict=True)
            ]
            both = (
                beside is not None and beside.leftward and len(later) > 1
            )  # one of the outputs reads from right to left
            found.future = max([found.future, *(sorted(later)[:1] if both else later)])
    cut = length // 2
    for name, changed, seen in (("past", slice(0, cut), slice(cut, None)), ("present", *2 * (slice(-1, None),))):
        new = sequence.clone()
        new[:, changed] = redrawn(new[:, changed], tokens, 6)
        for a, b in zip(outputs(sequence), outputs(new), strict=True):
            setattr(found, name, max(getattr(found, name), float(moved(a, b)[:, seen].max())))


def _ignores(again: Again, text: Text) -> bool:
    """Does the content of a text that is given, whole or except for one end, and looked up not matter?"""
    tokens, length = text.tokens, text.tokens.shape[1]
    given = [each for each in again.inputs if each.dim() == 2 and each.shape[1] - length in (0, 1)]
    if not any(tokens.equal(cut) for each in given for cut in (each[:, :length], each[:, -length:])):
        return False
    before, after = (text.swapped(again, each) for each in (tokens, redrawn(tokens, tokens, 11)))
    return all(change(a, b) < 1e-6 for a, b in zip(before, after, strict=True))


def _begins(row: torch.Tensor) -> torch.Tensor | None:
    """Where documents begin in a row of positions that restart, or of three or more document numbers."""
    if row.is_floating_point() or row.dtype == torch.bool or len(row) < 4:
        return None
    again, goes_on, stays = row[1:] == 0, row[1:] == row[:-1] + 1, row[1:] == row[:-1]
    if not int(row[0]) and bool((again | goes_on).all()) and bool(again.any()) and int(row.max()) >= 2:
        return again
    numbered = bool((goes_on | stays).all()) and 2 <= int(goes_on.sum()) < len(row) // 2 and int(row[0]) in (0, 1)
    return goes_on if numbered else None


def _is_beat(text: Text, places: torch.Tensor) -> bool:
    """Do these count places in bars or lines of one text, in a model that also looks up places in the whole text?"""
    return text.counted and not int(places[0, 0]) and bool((places[0, 1:] == 0).any())


def _last_document(begins: torch.Tensor, row: torch.Tensor) -> tuple[int, int]:
    """Where the last document, except the first, begins and ends. One repeated token is padding."""
    cuts = [*(begins.nonzero().flatten() + 1).tolist(), len(row)]
    documents = [(cut, end) for cut, end in pairwise(cuts) if row[cut:end].unique().numel() > 1]
    return documents[-1] if documents else (0, 0)


def _runs_on(row: torch.Tensor) -> bool:
    """Do these positions continue from one document to the next, which makes them one text?"""
    return not row.is_floating_point() and row.equal(torch.arange(len(row), device=row.device).to(row.dtype))


def _documents(found: Probe, again: Again, text: Text, sequence: Sequence | None) -> None:
    """If positions restart or documents are numbered, a document must not depend on the ones before."""
    tokens = text.tokens
    if sequence is None or sequence.shift != 1 or tokens.unique().numel() < 3:
        return
    if any(_runs_on(each[0]) for each in again.inputs if each.shape == tokens.shape):
        return
    beside = (each for each in (*again.inputs, *text.marks) if each.shape == tokens.shape)
    begins = next(
        (starts for each in beside if (starts := _begins(each[0])) is not None and not _is_beat(text, each)), None
    )
    cut, end = (0, 0) if begins is None else _last_document(begins, tokens[0])
    if not cut:
        return
    new = tokens.clone()
    new[0, :cut] = redrawn(new[0, :cut], tokens, 13)
    before, after = (_per_token(text.swapped(again, each), tokens, turned=False) for each in (tokens, new))
    for a, b in zip(before, after, strict=True):
        found.documents = max(found.documents, float(moved(a[0, cut:end], b[0, cut:end]).max()))
