"""SARIF: findings in the form that editors and code hosts show beside the code (SARIF 2.1.0)."""

import json
import re
from importlib.metadata import version
from typing import Any

from surefoot.records.finding import Finding, Findings

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def sarif_text(findings: Findings) -> str:
    """One SARIF log: a rule for every check that looked, a result for every finding."""
    rules = [{"id": name, "shortDescription": {"text": name.replace("-", " ")}} for name in findings.checks]
    driver = {"name": "surefoot", "version": version("surefoot"), "rules": rules}
    results = [_result(each, findings.checks) for each in findings.findings]
    run: dict[str, Any] = {"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}
    if findings.failure:
        notice = {"level": "error", "message": {"text": findings.failure}}
        run["invocations"] = [{"executionSuccessful": False, "toolExecutionNotifications": [notice]}]
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _result(finding: Finding, checks: tuple[str, ...]) -> dict[str, Any]:
    told = f"{finding.seen}. {finding.why}. Remedy: {finding.remedy}."
    return {
        "ruleId": finding.check,
        "ruleIndex": checks.index(finding.check),
        "level": _LEVELS[finding.severity],
        "message": {"text": told},
        "locations": [_location(finding.where)],
    }


def _location(where: str) -> dict[str, Any]:
    """A line of a file, or the module or part that the finding names."""
    line = re.fullmatch(r"(.+\.py):(\d+)", where)
    if line is None:
        return {"logicalLocations": [{"fullyQualifiedName": where}]}
    place = {"artifactLocation": {"uri": line[1]}, "region": {"startLine": int(line[2])}}
    return {"physicalLocation": place}
