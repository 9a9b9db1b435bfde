"""The words of twenty findings, as a person reads them."""

import re

import pytest

from tests.checks.programs import TWENTY, all_twins

TWINS = all_twins()


def told(name: str) -> str:
    finding = TWINS[name](True).findings[0]
    where = re.sub(r".*/(\w+\.py):\d+", r"\1:N", finding.where)
    words = {"seen": finding.seen, "where": where, "why": finding.why, "remedy": finding.remedy}
    return f"{finding.severity} {finding.check}\n" + "".join(f"  {label:7} {text}\n" for label, text in words.items())


@pytest.mark.parametrize("name", TWENTY)
def test_a_finding_reads_as_it_did(name: str, golden):
    golden(f"findings/{name}.txt", told(name))
