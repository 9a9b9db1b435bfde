"""The ledger: both sides of every account, and whether they agree."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.records.codec import from_json, to_json
from surefoot.records.ledger import Entry, Ledger
from surefoot.records.tally import Account, Tally
from surefoot.reports.html import difference_text

amounts = st.dictionaries(st.sampled_from(["memory/a/x", "memory/a/y", "memory/b", "flops/c"]), st.integers(0, 100))
tallies = amounts.map(lambda pairs: Tally.of(Account(name, amount, "u") for name, amount in pairs.items()))


@given(tallies, tallies)
def test_every_account_of_both_sides_is_entered_once(predicted, measured):
    ledger = Ledger.of(predicted, measured)
    names = [entry.account for entry in ledger.entries]
    assert names == sorted({account.name for side in (predicted, measured) for account in side.cut(2).accounts})
    for entry in ledger.entries:
        if entry.difference is not None:
            assert entry.difference == measured.total(entry.account) - predicted.total(entry.account)


@given(tallies)
def test_a_tally_agrees_with_itself(tally):
    assert Ledger.of(tally, tally).disagreements == ()


def test_a_tolerance_holds_for_all_below_and_the_nearest_counts():
    predicted = Tally.of([Account("memory/a", 100, "bytes"), Account("memory/b", 100, "bytes")])
    measured = Tally.of([Account("memory/a", 109, "bytes"), Account("memory/b", 109, "bytes")])
    ledger = Ledger.of(predicted, measured, tolerances={"memory": 0.1, "memory/b": 0.0})
    assert [entry.account for entry in ledger.disagreements] == ["memory/b"]


AMOUNTS = st.floats(0, 1e6)


@given(AMOUNTS, AMOUNTS, st.floats(0, 1), AMOUNTS, st.none() | st.tuples(AMOUNTS, AMOUNTS).map(sorted).map(tuple))
def test_a_difference_means_something_if_it_exceeds_every_limit(predicted, measured, tolerance, floor, interval):
    entry = Entry("a", "seconds", predicted, measured, tolerance, floor=floor, interval=interval)
    near = abs(measured - predicted) <= floor or abs(measured - predicted) <= tolerance * predicted
    inside = interval is not None and interval[0] <= measured <= interval[1]
    assert entry.agrees == (near or inside)
    assert replace(entry, partial=True).agrees is None


def test_a_large_share_is_a_factor_and_a_small_amount_has_none():
    assert difference_text(Entry("a", "bytes", 100, 2600)) == "+2.44 KiB (x 26)"
    assert difference_text(Entry("a", "bytes", 100, 150)) == "+50 B (+50.00%)"
    assert difference_text(Entry("a", "bytes", 100, 2600, floor=2**20)) == "+2.44 KiB"


def test_a_missing_side_is_neither_right_nor_wrong():
    ledger = Ledger.of(Tally(), Tally.of([Account("seconds/load", 1.5, "seconds")]))
    assert ledger.entries[0].agrees is None
    assert ledger.entries[0].difference is None
    assert from_json(Ledger, to_json(ledger)) == ledger


def test_units_must_match():
    with pytest.raises(ValueError, match="predicted in bytes and measured in FLOP"):
        Ledger.of(Tally.of([Account("a", 1, "bytes")]), Tally.of([Account("a", 1, "FLOP")]))
