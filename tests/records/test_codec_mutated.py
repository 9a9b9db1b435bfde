"""JSON that is not the record it should be is refused in one line that names the file and the field."""

import json
import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.errors import DataError, RunError, SurefootError
from surefoot.records.codec import Malformed, from_json, read_record, to_json
from surefoot.records.event import read_events
from surefoot.records.finding import Finding, Findings
from surefoot.records.log import LogRow, append_row, read_rows
from surefoot.records.plan import Plan, read_plan
from surefoot.records.profile import read_profile
from surefoot.records.run import Run, read_run, write_run
from surefoot.records.watched import read_watched

ROW = LogRow(1, 2.5, 1.0, 1.0, 0.1, 8, (1, 2), "d", True, 0.1, 0.0)
RUN = Run("r", "gpt", "", "gpt", {"layers": 2}, "running", 10, "cpu", "2.13.0", settings={"lr": 0.1})
DEEP = "[" * 200_000

WRONG = {
    "text for a number": ({"steps": "many"}, "steps is 'many', not a whole number"),
    "a word that is no number": ({"seconds": "soon"}, "seconds is 'soon', not a number"),
    "a list for an object": ({"settings": []}, "settings is a list, not an object"),
    "an object for text": ({"recipe": {}}, "recipe is an object, not text"),
    "a list inside": ({"settings": {"lr": [1]}}, "settings/lr is a list, not text or a whole number or a number"),
    "null": ({"recipe": None}, "recipe is null, not text"),
    "true for a number": ({"steps": True}, "steps is true, not a whole number"),
    "half a step": ({"steps": 1.5}, "steps is 1.5, not a whole number"),
    "a number for a list": ({"choices": 3}, "choices is 3, not a list"),
    "deep inside": (
        {"traffic": {"accounts": [{"name": "a", "amount": "x", "unit": "b"}]}},
        "traffic/accounts/0/amount is 'x', not a whole number or a number",
    ),
    "an unknown choice": ({"status": "done"}, "status is 'done', not one of running, interrupted, finished, failed"),
    "an unknown field": ({"colour": "red"}, "it has a field 'colour' that Run does not know"),
    "a huge number": ({"steps": 10**60}, "steps is a number of 200 bits; at most 128 are allowed"),
}


@pytest.mark.parametrize(("change", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_field_is_named(tmp_path, change, said):
    (tmp_path / "run.json").write_text(json.dumps({**json.loads(to_json(RUN)), **change}))
    with pytest.raises(RunError) as caught:
        read_run(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/run.json is damaged: {said}")
    assert "\n" not in str(caught.value)


TEXTS = {
    "nothing": (b"", "it is not JSON: Expecting value"),
    "cut": (b'{"path": "a', "it is not JSON: Unterminated string"),
    "not UTF-8": (b'{"path": "\xff"}', "it is not UTF-8: byte 0xff at 10"),
    "deep": (DEEP.encode(), "it is nested too deeply"),
    "deep objects": (b'{"a":' * 200_000, "it is nested too deeply"),
    "a list": (b"[]", "it is a list, not an object"),
    "a missing field": (b'{"path": "a"}', "it has no field 'about'"),
    "a key twice": (b'{"path": "a", "path": "b"}', "it has the field 'path' twice"),
    "a NaN": (b'{"seconds": NaN}', "it is not JSON: it holds NaN"),
    "too large for a float": (b'{"seconds": 1e999}', "seconds is a number too large for a float"),
    "thousands of digits": (b'{"steps": ' + b"9" * 5000 + b"}", "it is not JSON: Exceeds the limit"),
}


@pytest.mark.parametrize(("content", "said"), TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("name", ["run", "plan", "profile", "watched"])
def test_a_damaged_file_is_named_by_every_reader(tmp_path, name, content, said):
    (tmp_path / f"{name}.json").write_bytes(content)
    read = {"run": read_run, "plan": read_plan, "profile": read_profile, "watched": read_watched}[name]
    with pytest.raises(RunError) as caught:
        read(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/{name}.json is damaged: ")
    if name == "run":
        assert said in str(caught.value)


@pytest.mark.parametrize("content", [content for content, _ in TEXTS.values() if content], ids=list(TEXTS)[1:])
@pytest.mark.parametrize("read", [read_rows, read_events])
def test_a_damaged_line_is_named(tmp_path, read, content):
    (tmp_path / "lines").write_bytes(content + b"\n")
    with pytest.raises(RunError, match=r"lines, line 1, is damaged: "):
        list(read(tmp_path / "lines"))


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "run.json")
    (tmp_path / "plan.json").mkdir()
    (tmp_path / "profile.json").symlink_to("/dev/zero")
    with (tmp_path / "watched.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(RunError, match=r"run\.json cannot be read: is a pipe"):
        read_run(tmp_path)
    with pytest.raises(DataError, match=r"plan\.json cannot be read: is a folder"):
        read_record(Plan, tmp_path / "plan.json", error=DataError)
    with pytest.raises(RunError, match=r"profile\.json cannot be read: is a link"):
        read_profile(tmp_path)
    with pytest.raises(RunError, match=r"watched\.json is damaged: it has more than 268,435,456 bytes"):
        read_watched(tmp_path)
    with pytest.raises(RunError, match=r"watched\.json, line 1, is damaged: it has more than"):
        list(read_rows(tmp_path / "watched.json"))


def test_a_file_without_newer_fields_is_read(tmp_path):
    old = {name: value for name, value in json.loads(to_json(RUN)).items() if name not in ("saves", "environment")}
    (tmp_path / "run.json").write_text(json.dumps(old))
    assert read_run(tmp_path).environment == {}


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just("nan"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_value_in_any_place_is_read_or_refused(data):
    """Whatever stands in place of one value: a record, or `Malformed`. A record that was read is written the same."""
    whole = json.loads(to_json(Findings("r", ("a",), (Finding("a", "error", "s", "w", "y", "r"),))))
    places = [(whole, name) for name in whole] + [(whole["findings"][0], name) for name in whole["findings"][0]]
    holder, name = data.draw(st.sampled_from(places))
    holder[name] = data.draw(plain)
    text = json.dumps(whole)
    try:
        record = from_json(Findings, text)
    except Malformed:
        return
    assert json.loads(to_json(record)) == json.loads(text)


def test_a_log_is_read_at_a_rate_that_long_runs_need(tmp_path):
    path = tmp_path / "log.jsonl"
    with path.open("w") as file:
        for _ in range(5_000):
            append_row(file, ROW)
    begin = time.process_time()
    assert sum(1 for _ in read_rows(path)) == 5_000
    assert time.process_time() - begin < 2


def test_errors_of_readers_are_errors_of_surefoot(tmp_path):
    write_run(Run(str(tmp_path), "gpt", "", "gpt", {}, "running", 10, "cpu", "2.13.0"))
    (tmp_path / "run.json").chmod(0o644)
    (tmp_path / "events.jsonl").write_bytes(b"\xff\n")
    with pytest.raises(SurefootError, match=r"events\.jsonl, line 1, is damaged: it is not UTF-8"):
        read_run(tmp_path).happened()
