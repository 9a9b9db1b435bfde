"""One sample of the last evaluation disturbed: whether the outputs of the others stay as they were."""

from __future__ import annotations

from surefoot.debug.probe.results import Results, Verdict, of_kind
from surefoot.debug.probe.verdicts.evaluation import no_copies
from surefoot.records.finding import Finding
from surefoot.records.probed import Experiment

NAME = "one sample disturbed"


def samples(results: Results) -> Verdict:
    """Whether a sample's outputs depend on itself alone."""
    reason = no_copies(results)
    if not reason and results.roles.inputs_enter != "loader":
        reason = "without a loader it is not known that rows are samples"
    ran = next(iter(of_kind(results.copies, "sample")), None)
    if not reason and ran is None and results.base is not None:
        reason = results.base.no_copies
    if not reason and (ran is None or not ran.changed):
        reason = "no batch of at least 4 samples could be disturbed"
    if not reason and ran is not None and not ran.mixed:
        reason = "no output of the model has one row per sample, or it did not change at all"
    if not reason and ran is not None and ran.mixed[0] == "batch statistics":
        reason = "batch normalisation uses the batch's own statistics in this evaluation"
    if reason or ran is None:
        return Verdict(Experiment(NAME, "not tried", reason))
    if ran.mixed[0] == "apart":
        return Verdict(Experiment(NAME, "as expected", "outputs of the other samples stay the same"))
    first = ran.mixed[1] if len(ran.mixed) > 1 else "the model"
    seen = f"outputs of other samples change, first in {first}"
    assert results.base is not None
    finding = Finding(
        "samples-mix",
        "warning",
        f"when one sample of a batch was replaced in the evaluation, {seen}: what a sample gets depends on its "
        "neighbours",
        results.base.places.get("call", "") or results.base.places.get("batch", ""),
        "predictions change with the batch that a sample happens to be in, and alone it is predicted otherwise",
        "look for a softmax, attention or mean over the dimension of samples, a reshape that moves rows, or "
        "batch_first",
    )
    return Verdict(Experiment(NAME, "finding", seen), finding)
