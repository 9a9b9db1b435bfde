"""One batch again and again, in the evaluation too: a loss that reaches 0 beside a metric that stays by chance."""

from __future__ import annotations

from statistics import fmean

from surefoot.debug.probe.results import Results, Verdict, metrics_of, tail
from surefoot.debug.probe.verdicts.evaluation import BY_CHANCE
from surefoot.records.finding import Finding
from surefoot.records.probed import Experiment

NAME = "one batch again and again"
REACHED = 0.1
"""The share of its first value below which a loss has learned the batch."""


def one_batch(results: Results) -> Verdict:
    """Whether the metric agrees with a loss that has learned the batch it is given."""
    ran = results.one_batch
    if ran is None or ran.error:
        why = "there is no loader to repeat a batch of" if ran is None else f"the run failed: {ran.error}"
        return Verdict(Experiment(NAME, "not tried", why))
    first, last = fmean(ran.losses[:2]), fmean(tail(ran, len(ran.losses)))
    seen = f"loss {first:.4g} to {last:.4g}"
    figures = {"first": first, "last": last}
    metrics = metrics_of(results.one_batch_copies)
    if not 0 <= last < REACHED * first:
        return Verdict(Experiment(NAME, "unclear", f"{seen} in {len(ran.losses)} updates", figures))
    if not metrics:
        return Verdict(Experiment(NAME, "as expected", f"{seen}; no metric depends on the targets", figures))
    figures |= {each.label: round(each.z, 2) for each in metrics}
    worst = min(metrics, key=lambda each: each.z if each.better else abs(each.z))
    seen += f"; {worst.told}"
    wrong = [each for each in metrics if (each.z if each.better else abs(each.z)) < BY_CHANCE]
    if not wrong or (len(wrong) < len(metrics) and not worst.better):
        return Verdict(Experiment(NAME, "as expected", seen, figures))
    finding = Finding(
        "loss-and-metric-disagree",
        "warning",
        f"one batch was learned by heart (loss {first:.4g} to {last:.4g}), and on the same batch {worst.label} is "
        f"{worst.value:.4g}; with permuted targets it is {worst.mean:.4g} ± {worst.spread:.2g}",
        worst.where,
        "the metric does not measure what the loss makes the model do",
        "compare what loss and metric take for a prediction and a target: sign, axis, units, which output, format "
        "(corners, or centre and size)",
    )
    return Verdict(Experiment(NAME, "finding", seen, figures), finding)
