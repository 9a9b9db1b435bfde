"""Targets permuted in the last evaluation: what each metric would be if the model knew nothing of them."""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.debug.probe.results import Metric, Results, Verdict, metrics_of, of_kind
from surefoot.debug.probe.verdicts.pairs import learned
from surefoot.records.finding import Finding
from surefoot.records.probed import Experiment

NAME = "targets permuted in evaluation"
BY_CHANCE = 3.0
"""Standard deviations of its own null within which a metric reads nothing."""
SURE = 10.0
"""Beyond which another metric of the same evaluation certainly reads its targets."""


def no_copies(results: Results) -> str:
    """Why the last evaluation tells nothing; empty if it was copied."""
    base = results.base
    if base is None or base.error:
        return "the run did not come to its evaluation" + (f": {base.error}" if base is not None else "")
    if base.no_copies and not results.copies:
        return base.no_copies
    if not base.evaluations:
        return "no evaluation was recognised"
    return "" if results.copies else "no evaluation was copied"


def evaluation(results: Results) -> Verdict:
    """Whether each metric is better than its own null."""
    reason = no_copies(results)
    if not reason and not any(each.changed for each in of_kind(results.copies, "targets")):
        reason = "no targets were found in the evaluation's batches, or all of them are alike"
    if reason:
        return Verdict(Experiment(NAME, "not tried", reason))
    metrics = metrics_of(results.copies)
    if not metrics:
        return Verdict(Experiment(NAME, "unclear", "no number that the script prints depends on the targets"))
    figures = {each.label: round(each.z, 2) for each in metrics}
    by_label = {each.label: each.told for each in sorted(metrics, key=lambda each: -abs(each.z))}
    seen = "; ".join([*by_label.values()][:-4:-1])
    wrong = [each for each in metrics if each.better and each.z <= -BY_CHANCE]
    chance = [each for each in metrics if abs(each.z) < BY_CHANCE]
    if not (chance or wrong):
        return Verdict(Experiment(NAME, "as expected", seen, figures))
    if learned(results) is not True:
        return Verdict(Experiment(NAME, "unclear", f"{seen}; but nothing shows that it learned", figures))
    if wrong:
        return Verdict(Experiment(NAME, "finding", seen, figures), _below(wrong[0]))
    if len(chance) < len(metrics) and not _one_is_broken(chance, metrics):
        return Verdict(Experiment(NAME, "unclear", seen, figures))
    return Verdict(Experiment(NAME, "finding", seen, figures), _at_chance(chance, metrics))


def _one_is_broken(chance: Sequence[Metric], metrics: Sequence[Metric]) -> bool:
    """Is one metric with a known name by chance, where the others certainly are not?"""
    rest = [each for each in metrics if each not in chance]
    return any(each.better for each in chance) and all(abs(each.z) > SURE for each in rest)


def _at_chance(chance: Sequence[Metric], metrics: Sequence[Metric]) -> Finding:
    first = next((each for each in chance if each.better), chance[0])
    rest = [each.label for each in metrics if each not in chance]
    beside = f" {' and '.join(rest[:2])} of the same evaluation does." if rest else ""
    return Finding(
        "evaluation-at-chance",
        "info" if rest else "warning",
        f"in the last evaluation {first.label} was {first.value:.4g}, and {first.mean:.4g} ± {first.spread:.2g} when "
        f"its targets were permuted: it does not tell the targets from others. Training learned from its own targets."
        f"{beside}",
        first.where,
        "the evaluation does not measure what was trained",
        "compare one batch of both splits by hand: how labels are numbered, the order and scale of inputs, which "
        "output and which axis the metric reads",
    )


def _below(metric: Metric) -> Finding:
    return Finding(
        "metric-below-chance",
        "warning",
        f"in the last evaluation {metric.label} was {metric.value:.4g}, and {metric.mean:.4g} ± {metric.spread:.2g} "
        "when its targets were permuted: by its name it is worse than without any knowledge of the targets",
        metric.where,
        "what the loss pushes apart the metric wants together, or the other way round",
        "see whether both splits number labels alike, and whether loss and metric agree on what 1 means, the sign of "
        "a distance or score, and the order of their arguments",
    )
