"""Records of the right types with wrong numbers: a report shows them, or one line says that they do not fit."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from surefoot.cli.main import app
from surefoot.errors import RunError
from tests.reports.hostile import hostile_run


@pytest.fixture(autouse=True)
def as_a_user_has_it(monkeypatch):
    monkeypatch.delenv("SUREFOOT_RAISE", raising=False)


def places(value, path=()):
    """Every number, list and object of a record, by its path."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield (*path, key), item
        yield from places(item, (*path, key))


def changed(plain, path, value):
    made = json.loads(json.dumps(plain))
    *way, last = path
    inner = made
    for part in way:
        inner = inner[part]
    inner[last] = value
    return made


@pytest.mark.parametrize("name", ["run", "plan", "profile", "watched"])
def test_numbers_that_cannot_be_end_in_a_report_or_in_one_line(tmp_path, name):
    folder = hostile_run(tmp_path / "a", "")
    file = folder / f"{name}.json"
    plain = json.loads(file.read_text())
    others = {int: (0, -1, 10**30), float: (0.0, -1.0, "nan", 1e300), str: ("", "x/y"), list: ([],), dict: ({},)}
    cases = [(path, each) for path, item in places(plain) for each in others.get(type(item), ())]
    for number in range(0, len(cases), max(1, len(cases) // 6)):
        file.write_text(json.dumps(changed(plain, *cases[number])))
        refuse_crash(folder, tmp_path, cases[number])


def refuse_crash(folder: Path, to: Path, case: object) -> None:
    result = CliRunner().invoke(app, ["report", str(folder), "--html", str(to / "page.html")])
    assert result.exception is None or isinstance(result.exception, RunError), (case, result.exception)


def test_accounts_in_two_units_are_named(tmp_path):
    folder = hostile_run(tmp_path / "a", "")
    plain = json.loads((folder / "profile.json").read_text())
    plain["steady"]["tally"]["accounts"][0]["unit"] = "miles"
    (folder / "profile.json").write_text(json.dumps(plain))
    result = CliRunner().invoke(app, ["report", str(folder)])
    assert isinstance(result.exception, RunError)
    assert "contradict each other: ValueError: account" in str(result.exception)
