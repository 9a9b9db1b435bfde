"""Every record survives JSON; NaN enters it as a word."""

import json

import pytest

import surefoot
from surefoot.records.codec import from_json, to_json
from surefoot.records.finding import Finding, Findings
from surefoot.records.tally import Account
from surefoot.units import amount_text, bytes_text, flops_text, seconds_text


def test_plans_profiles_and_findings_survive(small_recipe):
    recipe = small_recipe("sentiment")
    for record in (surefoot.plan(recipe), surefoot.profile(recipe, timed_steps=1), surefoot.check(recipe)):
        assert from_json(type(record), to_json(record)) == record
    findings = Findings("r", ("a",), (Finding("a", "error", "s", "w", "y", "r"),), ("b",))
    assert from_json(Findings, to_json(findings)) == findings


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), -float("inf")])
def test_json_has_no_nan_so_it_is_a_word(amount: float):
    text = to_json(Account("a", amount, "bytes"))
    assert json.loads(text)["amount"] == str(amount)
    assert repr(from_json(Account, text).amount) == repr(amount)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (bytes_text(0), "0 B"),
        (bytes_text(1023), "1023 B"),
        (bytes_text(1024), "1.00 KiB"),
        (bytes_text(2_415_919_104), "2.25 GiB"),
        (flops_text(12_886_000_000), "12.89 GFLOP"),
        (flops_text(6.3e24), "6.30 YFLOP"),
        (seconds_text(8.4e-4), "840 us"),
        (seconds_text(0.0123), "12.3 ms"),
        (seconds_text(4.213), "4.21 s"),
        (seconds_text(600), "10.0 min"),
        (seconds_text(7500), "2 h 05 min"),
        (seconds_text(144.3 * 86400), "144.3 days"),
        (amount_text(8192, "tokens"), "8,192 tokens"),
    ],
)
def test_units_read_well(text, expected):
    assert text == expected
