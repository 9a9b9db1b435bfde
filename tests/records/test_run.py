"""Runs and logs: written whole, read back equal, torn lines left out."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.errors import RunError
from surefoot.records.log import LogRow, append_row, mend, read_rows, standing
from surefoot.records.run import Run, read_run, write_run

rows = st.lists(
    st.builds(
        LogRow,
        step=st.integers(1, 10**9),
        loss=st.floats(),
        grad_norm=st.floats(),
        clipped_norm=st.floats(),
        lr=st.floats(0, 1),
        tokens=st.integers(0, 10**12),
        samples=st.none() | st.lists(st.integers(0, 10**12), max_size=3).map(tuple),
        samples_digest=st.text(max_size=3),
        updated=st.booleans(),
        seconds=st.floats(0, 1e6),
        data_seconds=st.floats(0, 1e6),
        attempt=st.integers(0, 3),
        evaluation_loss=st.none() | st.floats(),
    ),
    max_size=5,
)


@settings(deadline=None)  # files are written; a machine that is busy takes its time
@given(rows)
def test_rows_there_and_back_to_the_bit_and_a_torn_line_is_no_row(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    with path.open("w") as file:
        for row in rows:
            append_row(file, row)
        file.write('{"step": 7, "loss": 1.')
    assert repr(list(read_rows(path))) == repr(rows)
    mend(path)
    with path.open("a") as file:
        for row in rows:
            append_row(file, row)
    assert repr(list(read_rows(path))) == repr(rows + rows)


def row(step: int, *, loss: float = 1.0, attempt: int = 0) -> LogRow:
    return LogRow(step, loss, 1.0, 1.0, 0.1, 8, (step,), "d", True, 0.1, 0.0, attempt)


def test_one_row_stands_for_each_step():
    first = [row(1), row(2), row(3)]
    again = [row(2), row(3), row(4)]
    assert standing([*first, *again]) == [row(1), row(2), row(3), row(4)]


def test_a_later_attempt_replaces_what_it_goes_back_behind():
    rows = [row(1), row(2), row(3), row(4), row(3, loss=2.0, attempt=1)]
    assert [(each.step, each.loss) for each in standing(rows)] == [(1, 1.0), (2, 1.0), (3, 2.0)]


def test_what_came_out_differently_is_named():
    assert row(1).differs_from(row(1)) == []
    assert row(1, loss=float("nan")).differs_from(row(1, loss=float("nan"))) == []
    assert row(1, loss=2.0).differs_from(row(1)) == ["loss 1.0, then 2.0"]


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "log.jsonl"
    with path.open("w") as file:
        append_row(file, row(1))
        file.write("{]\n")
        append_row(file, row(2))
    with pytest.raises(RunError, match=r"log\.jsonl, line 2, is damaged"):
        list(read_rows(path))


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


@pytest.mark.parametrize("change", [{"passed_over": [1]}, {"attempt": 1}, {"threads": 2}, {"status": "finished"}])
def test_a_run_whose_record_was_changed_is_refused(change, tmp_path):
    """Also where every type is right: what it passes over decides which samples the next step takes."""
    write_run(Run(str(tmp_path), "gpt", "", "gpt", {"layers": 2}, "running", 10, "cpu", "2.13.0", seconds=1))
    assert read_run(tmp_path).seconds == 1
    plain = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**plain, **change}))
    with pytest.raises(RunError, match=r"run\.json was changed by hand or is damaged"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({**plain, **change, "digest": ""}))
    assert read_run(tmp_path).recipe == "gpt"
