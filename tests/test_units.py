"""Numbers as people read them: none in scientific notation, none shown as nothing."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.units import amount_text, money_text, short_count

AMOUNTS = st.floats(1e-12, 1e15)


@given(amount=AMOUNTS, unit=st.sampled_from(["bytes", "FLOP", "seconds", "dollars", "days", "tokens", "steps"]))
def test_no_amount_is_shown_in_scientific_notation(amount, unit):
    assert not re.search(r"\de[+-]?\d", amount_text(amount, unit))
    assert not re.search(r"\de[+-]?\d", short_count(max(1.0, amount)))


@pytest.mark.parametrize(
    ("dollars", "text"),
    [
        (0, "0"),
        (5.28e-05, "less than 0.01"),
        (0.5, "0.50"),
        (12.4, "12.40"),
        (16, "16"),
        (99.999, "100"),
        (14_120_324, "14,120,324"),
    ],
)
def test_money(dollars, text):
    assert money_text(dollars) == f"{text} dollars"


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0"), (7, "7"), (999.9, "1K"), (443_648, "444K"), (70e9, "70B"), (5.12e12, "5.12T"), (15e15, "15,000T")],
)
def test_large_counts(amount, text):
    assert short_count(amount) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.9996, "1 s"), (0.9996e-3, "1 ms"), (0.5, "500 ms"), (9e-4, "900 us")])
def test_seconds_beside_a_unit_take_the_next(seconds, text):
    assert amount_text(seconds, "seconds") == text


def test_a_short_day_is_shown_in_seconds():
    assert amount_text(5.28e-05, "days") == "4.56 s"
