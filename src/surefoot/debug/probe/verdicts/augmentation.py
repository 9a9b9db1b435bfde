"""Augmentation frozen: a target that does not move with its input is learned much better without the movement."""

from __future__ import annotations

from statistics import fmean

from surefoot.debug.probe.results import Results, Verdict, noise_of, tail
from surefoot.debug.probe.verdicts.pairs import not_tried
from surefoot.records.finding import Finding
from surefoot.records.probed import Experiment

NAME = "augmentation frozen"
FALLS = 0.3
"""Below this share of the loss before, with both seeds."""


def applies(results: Results) -> str:
    """Why it says nothing of this script; empty if it does."""
    facts = results.look.facts
    if "inputs_move" not in facts:
        return "no data set whose samples can be read again"
    if not facts["inputs_move"]:
        return "reading a sample twice gives the same input"
    if facts["targets_move"]:
        return "targets change together with inputs"
    if not facts["dense_targets"]:
        return "its targets do not say where something is, as boxes, points and masks do"
    return (
        "" if facts["inputs_keep_values"] else "reading a sample twice changes its values, and does not only move them"
    )


def augmentation(results: Results) -> Verdict:
    """Whether both frozen runs have a far lower loss."""
    reason = applies(results)
    if results.look.facts.get("targets_move"):
        return Verdict(Experiment(NAME, "as expected", reason))
    for ran in results.frozen or (None,):
        reason = reason or (not_tried(results, ran) if ran is None or ran.error else "")
    if reason or results.base is None:
        return Verdict(Experiment(NAME, "not tried", reason))
    updates = min(len(each.losses) for each in (results.base, *results.frozen))
    own = tail(results.base, updates)
    losses = [fmean(tail(each, updates)) for each in results.frozen]
    seen = f"loss {fmean(own):.4g}; frozen {' and '.join(f'{each:.4g}' for each in losses)}"
    if not all(each < FALLS * fmean(own) and fmean(own) - each > 3 * noise_of([own]) for each in losses):
        return Verdict(Experiment(NAME, "as expected", seen))
    finding = Finding(
        "target-stays-where-it-was",
        "warning",
        f"reading a sample again moves its input and not its target; with the movement frozen the {seen}",
        results.base.places.get("batch", ""),
        "the model is told where things were before they moved",
        "apply each flip, shift, crop and rotation to the boxes, points or masks too, with the same random numbers",
    )
    return Verdict(Experiment(NAME, "finding", seen), finding)
