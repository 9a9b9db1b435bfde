"""Tallies add up, however they are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.records.codec import from_json, to_json
from surefoot.records.tally import Account, Tally

parts = st.text("abc.", min_size=1, max_size=4)
names = st.lists(parts, min_size=1, max_size=4).map("/".join)
tallies = st.lists(st.tuples(names, st.integers(0, 10**15)), max_size=20).map(
    lambda pairs: Tally.of(Account(name, amount, "bytes") for name, amount in pairs)
)


@given(tallies)
def test_json_there_and_back(tally):
    assert from_json(Tally, to_json(tally)) == tally


@given(tallies, st.integers(1, 4))
def test_cutting_loses_nothing(tally, depth):
    cut = tally.cut(depth)
    assert sum(account.amount for account in cut.accounts) == sum(account.amount for account in tally.accounts)
    assert all(account.name.count("/") < depth for account in cut.accounts)


@given(tallies, tallies)
def test_adding_adds_every_account(left, right):
    added = left + right
    for account in (*left.accounts, *right.accounts):
        assert added.total(account.name) == left.total(account.name) + right.total(account.name)


@given(tallies)
def test_what_stands_below_an_account_adds_up_to_it(tally):
    for account in tally.accounts:
        top = account.name.split("/")[0]
        own = sum(each.amount for each in tally.accounts if each.name == top)
        assert tally.total(top) == own + sum(tally.under(top).values())


def test_a_name_is_not_a_prefix_of_another_word():
    tally = Tally.of([Account("memory/a", 1, "bytes"), Account("memory/ab", 2, "bytes")])
    assert tally.total("memory/a") == 1


def test_two_units_under_one_name_are_refused():
    with pytest.raises(ValueError, match="booked in bytes and in FLOP"):
        Tally.of([Account("a", 1, "bytes"), Account("a", 1, "FLOP")])
