"""One fixed permutation of the training targets: is anything learned from which target belongs to which input?"""

from __future__ import annotations

from statistics import fmean

from surefoot.debug.probe.order import Ran
from surefoot.debug.probe.results import FEWEST_UPDATES, Results, Verdict, gap, metrics_of, noise_of, tail
from surefoot.records.finding import Finding
from surefoot.records.probed import Experiment

NAME = "training targets permuted once"
SMALL, BY_CHANCE = 0.05, 3.0
"""Clean scripts lie above both: gaps of at least 0.05, or losses 3 standard deviations apart."""
LATER, KNOWS = 0.2, 5.0
"""A training that is slow at first: its loss falls by this share later, and a metric is this far from its null.

Both: a model that learned nothing may agree with the targets by chance, and wrong pairs are learned by heart."""


def not_tried(results: Results, ran: Ran | None) -> str:
    """Why a run with something changed cannot be compared with the base; empty if it can."""
    base = results.base
    if results.look.facts.get("optimizers", 1) > 1:
        return "two optimizers take turns, and the loss of one is no measure"
    if base is None or ran is None:
        return "it did not run"
    if ran.error or base.error:
        return f"the run failed: {ran.error or base.error}"
    if min(len(ran.losses), len(base.losses)) < FEWEST_UPDATES:
        return f"fewer than {FEWEST_UPDATES} updates"
    if ran.batches != base.batches:
        return "its batches depend on the training itself, or on unseeded random numbers"
    return ""


def learned(results: Results) -> bool | None:
    """Does the training learn from its pairs? None if that is not known."""
    if not_tried(results, results.fixed) or results.fixed is None or not results.fixed.changed:
        return None
    relative, z, *_ = _measured(results, results.fixed)
    return relative >= SMALL and z >= BY_CHANCE


def pairs(results: Results) -> Verdict:
    """Whether the loss with permuted targets is worse than the loss with its own."""
    fixed = results.fixed
    reason = not_tried(results, fixed)
    if not reason and fixed is not None and not fixed.changed:
        reason = "no target was found that differs between samples"
    if reason or fixed is None:
        return Verdict(Experiment(NAME, "not tried", reason))
    relative, z, own, other, updates = _measured(results, fixed)
    seen = f"loss {own:.4g} after {updates} updates; permuted {other:.4g}"
    figures = {"gap": round(relative, 4), "z": round(z, 2), "loss": own, "loss_permuted": other}
    if relative >= SMALL or z >= BY_CHANCE:
        return Verdict(Experiment(NAME, "as expected", seen, figures))
    if _learns_later(results, other):
        return Verdict(Experiment(NAME, "unclear", f"{seen}; it learned later", figures))
    return Verdict(Experiment(NAME, "finding", seen, figures), _finding(results, own, other, updates))


def _learns_later(results: Results, permuted: float) -> bool:
    """Is the loss at the end of the whole run far lower, and do its metrics know their targets?"""
    assert results.base is not None
    losses = results.base.losses
    last = fmean(tail(results.base, len(losses)))
    knows = any(each.z > KNOWS if each.better else abs(each.z) > KNOWS for each in metrics_of(results.copies))
    return knows and gap(last, permuted, losses[0]) > LATER


def _measured(results: Results, fixed: Ran) -> tuple[float, float, float, float, int]:
    assert results.base is not None
    updates = min(len(fixed.losses), len(results.base.losses))
    tails = [tail(each, updates) for each in (results.base, results.seed) if each is not None and not each.error]
    tails = [each for each in tails if each]
    own, other = fmean(tails[0]), fmean(tail(fixed, updates))
    z = (other - fmean(map(fmean, tails))) / noise_of(tails)
    return gap(own, other, results.base.losses[0]), z, own, other, updates


def _finding(results: Results, own: float, other: float, updates: int) -> Finding:
    found = None
    for shift, ran in results.shifted.items():
        if not not_tried(results, ran) and ran.changed:
            shifted = fmean(tail(ran, updates))
            if gap(shifted, own, own) > 0.2 and (found is None or shifted < found[1]):
                found = shift, shifted
    said = (
        f" With the target of the {'next' if found[0] > 0 else 'previous'} sample the loss is {found[1]:.4g}: inputs "
        "and targets are shifted by one"
        if found
        else " Data without a signal, and training too slow for these updates, look the same"
    )
    assert results.base is not None
    return Finding(
        "nothing-learned-from-pairs",
        "warning",
        f"after {updates} updates the loss is {own:.4g}, and {other:.4g} when every sample keeps the target of another "
        f"one: nothing was learned from which target belongs to which input.{said}",
        results.base.places.get("batch", "") or results.base.places.get("loss", ""),
        "the model learns how frequent the targets are, and nothing about the inputs",
        "print a few inputs beside their targets as they enter the loss: look for a shuffle, sort, filter or roll of "
        "only one of them, and for rows joined by position instead of by key",
    )
