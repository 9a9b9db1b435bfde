"""Another seed: how much the loss differs by chance. What is below it is not reported."""

from __future__ import annotations

from statistics import fmean

from surefoot.debug.probe.results import Results, Verdict, tail
from surefoot.records.probed import Experiment

NAME = "another seed"


def seeds(results: Results) -> Verdict:
    """The loss of two seeds after the same number of updates."""
    base, seed = results.base, results.seed
    if base is None or seed is None or base.error or seed.error or not base.losses or not seed.losses:
        failed = next((each.error for each in (base, seed) if each is not None and each.error), "")
        return Verdict(Experiment(NAME, "not tried", f"the run failed: {failed}" if failed else "it did not run"))
    updates = min(len(base.losses), len(seed.losses))
    one, other = (fmean(tail(each, updates)) for each in (base, seed))
    figures = {"loss": one, "loss_other_seed": other}
    return Verdict(Experiment(NAME, "as expected", f"loss {one:.4g} and {other:.4g} after {updates} updates", figures))
