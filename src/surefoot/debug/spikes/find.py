"""Finds the step of a log that stands out: the first NaN, or the largest jump of the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from surefoot.errors import RunError
from surefoot.records.log import LogRow
from surefoot.records.spike import Symptom
from surefoot.training.guards.spike import ENOUGH, Spikes


def symptom_at(rows: Sequence[LogRow], step: int | None, *, scaled: bool = False) -> Symptom | None:
    """The step that stands out, or the one that is asked for; None if none does.

    A loss stands out as a spike of a running training does; a step that is asked for is held against the last 16 losses
    only. If the loss was already too high right before the one that stands out, the first of those steps is meant. With
    `scaled` gradients, infinite ones are usual: the scaler skips such updates.
    """
    found = _symptoms(rows, scaled=scaled, seen=Spikes() if step is None else Spikes(window=ENOUGH))
    if step is not None:
        wanted = next((each for each in found if each.step == step), None)
        if wanted is None:
            _refuse(rows, step)
        return wanted
    if not found:
        return None
    broken = [each for each in found if is_broken(each)]
    worst = broken[0] if broken else max(found, key=lambda each: each.loss / (each.limit or math.inf))
    first, steps = worst, {each.step: each for each in found}
    while first.step - 1 in steps:
        first = steps[first.step - 1]
    return replace(first, shown_at=worst.step)


def _symptoms(rows: Sequence[LogRow], *, scaled: bool, seen: Spikes) -> list[Symptom]:
    found = list[Symptom]()
    for row in rows:
        if row.loss is None:
            continue
        usual, limit = (seen.usual(), seen.limit()) if seen.knows else (None, None)
        norm = row.grad_norm
        broken = not scaled and math.isfinite(row.loss) and norm is not None and not math.isfinite(norm)
        if not math.isfinite(row.loss) or broken:
            found.append(Symptom(row.step, row.loss, norm, usual, limit, in_gradient=broken))
        elif seen.see(row.loss):
            found.append(Symptom(row.step, row.loss, norm, usual, limit))
    return found


def is_broken(symptom: Symptom) -> bool:
    """Whether something is NaN or infinite, not only large."""
    return symptom.in_gradient or not math.isfinite(symptom.loss)


def _refuse(rows: Sequence[LogRow], step: int) -> None:
    """Raises if a step cannot stand out: it is not in the log, or too early to be compared with others."""
    if step not in {row.step for row in rows}:
        raise RunError(f"the log has no step {step}; it has {len(rows):,} steps")
    if sum(row.step < step for row in rows) < ENOUGH:
        raise RunError(f"step {step} comes too early: a loss stands out from at least {ENOUGH} others before it")
