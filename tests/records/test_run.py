"""Runs and logs: written whole, read back equal, torn lines left out."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.errors import RunError
from surefoot.records.log import LogRow, append_row, read_rows
from surefoot.records.run import Run, read_run, write_run

rows = st.lists(
    st.builds(
        LogRow,
        step=st.integers(1, 10**9),
        loss=st.floats(),
        grad_norm=st.none() | st.floats(),
        lr=st.floats(0, 1),
        tokens=st.integers(0, 10**12),
        seconds=st.floats(0, 1e6),
    ),
    max_size=5,
)


def same(left: float | None, right: float | None) -> bool:
    return left == right or (left is not None and right is not None and math.isnan(left) and math.isnan(right))


@given(rows)
def test_rows_there_and_back_and_a_torn_line_is_no_row(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    with path.open("w") as file:
        for row in rows:
            append_row(file, row)
        file.write('{"step": 7, "loss": 1.')
    back = list(read_rows(path))
    assert len(back) == len(rows)
    for one, two in zip(rows, back, strict=True):
        assert same(one.loss, two.loss)
        assert same(one.grad_norm, two.grad_norm)
        assert (one.step, one.lr, one.tokens, one.seconds) == (two.step, two.lr, two.tokens, two.seconds)


def test_a_run_that_was_moved_knows_where_it_is(tmp_path):
    (tmp_path / "a").mkdir()
    run = Run(str(tmp_path / "a"), "gpt", "", "gpt", {"layers": 2}, "running", 10, "cpu", "2.13.0")
    write_run(run)
    (tmp_path / "a").rename(tmp_path / "b")
    moved = read_run(tmp_path / "b")
    assert moved.path == str(tmp_path / "b")
    assert (moved.recipe, moved.knobs, moved.status) == ("gpt", {"layers": 2}, "running")
    assert moved.rows() == []


def test_a_directory_that_is_no_run_is_said_to_be_none(tmp_path):
    with pytest.raises(RunError, match=r"is not a run: it holds no run\.json"):
        read_run(tmp_path)
