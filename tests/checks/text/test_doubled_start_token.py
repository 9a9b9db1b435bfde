"""doubled-start-token: the buggy and the fixed program, and what looks like it and is fine."""

import pytest

from tests.checks.programs import named, twin
from tests.checks.text.programs import START
from tests.checks.text.tuned import texts, tuned


@twin("doubled-start-token")
def _(buggy):
    return tuned(texts(start=[START] * (1 + buggy)))


@pytest.mark.parametrize("config", [{"bos_token_id": None}, {"_name_or_path": ""}])
def test_a_token_that_is_not_known_as_the_start_may_stand_twice(config):
    assert named(tuned(texts(start=[START, START]), **config)) == []


def test_some_texts_may_begin_with_two():
    rows = texts(12) + texts(12, start=[START, START])
    assert named(tuned(rows)) == []
