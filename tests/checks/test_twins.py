"""Every check has a buggy program that it names and a fixed twin that is clean."""

import re

import pytest

from surefoot.checks.registry import CHECKS
from tests.checks.programs import all_twins

TWINS = all_twins()
OF_SEVERAL_RANKS = (
    "clipping-by-local-norm",
    "diverging-replicas",
    "gradients-reduced-twice",
    "metric-of-one-rank",
    "same-randomness-on-all-ranks",
    "shards-lost-in-saving",
    "sync-in-every-micro-batch",
    "unequal-step-counts",
    "unsharded-data",
)
"""Their programs are in `ranks/program.py`."""


def test_every_check_has_twins():
    assert {*TWINS, *OF_SEVERAL_RANKS} == set(CHECKS)


@pytest.mark.parametrize("name", TWINS)
def test_the_buggy_twin_is_named_and_only_that(name: str):
    findings = TWINS[name](True)
    assert [finding.check for finding in findings.findings] == [name]
    for part in (finding := findings.findings[0]).seen, finding.where, finding.why, finding.remedy:
        assert part
        assert not re.search(r"(?<!, )\b1 ([A-Z]\w+ )?[a-z]*[^\Ws]s\b", part)  # `1 tensors`


@pytest.mark.parametrize("name", TWINS)
def test_the_fixed_twin_is_clean(name: str):
    assert TWINS[name](False).findings == ()


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_stands_in_the_test_file_of_its_rule(name: str):
    subject, rule = CHECKS[name].__module__.split(".")[-3::2]
    assert TWINS[name].__module__ == f"tests.checks.{subject}.test_{rule}"
