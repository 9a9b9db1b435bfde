"""The words of twenty findings, as a person reads them."""

import re

import pytest

from tests.checks.programs import all_twins

TWINS = all_twins()
TWENTY = (
    "missing-zero-grad", "detached-loss", "detached-layers", "eval-mode-in-training", "training-mode-in-evaluation",
    "layers-in-plain-list", "parameter-outside-optimizer", "softmax-before-cross-entropy", "broadcast-loss",
    "future-tokens-in-logits", "targets-equal-inputs", "padding-in-loss", "summed-micro-batches",
    "mean-of-unequal-means", "clipping-scaled-gradients", "scheduler-at-wrong-rate", "kept-losses",
    "update-without-gradients", "updates-rounded-away", "changing-samples",
)  # fmt: skip


def told(name: str) -> str:
    finding = TWINS[name](True).findings[0]
    where = re.sub(r".*/(\w+\.py):\d+", r"\1:N", finding.where)
    words = {"seen": finding.seen, "where": where, "why": finding.why, "remedy": finding.remedy}
    return f"{finding.severity} {finding.check}\n" + "".join(f"  {label:7} {text}\n" for label, text in words.items())


@pytest.mark.parametrize("name", TWENTY)
def test_a_finding_reads_as_it_did(name: str, golden):
    golden(f"findings/{name}.txt", told(name))
