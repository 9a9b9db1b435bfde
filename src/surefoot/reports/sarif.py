"""SARIF: findings in the format that editors and code hosts show next to the code (SARIF 2.1.0)."""

import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from surefoot.records.finding import Finding, Findings

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"
"""The name that SARIF readers give to the root of the checkout."""
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def sarif_text(findings: Findings, *, file: str = "") -> str:
    """One SARIF log: a rule for every check that ran, a result for every finding.

    `file` is the script or recipe that was checked. A finding that names a module and no line is shown at its top:
    code hosts refuse a result that is in no file.
    """
    rules = [{"id": name, "shortDescription": {"text": name.replace("-", " ")}} for name in findings.checks]
    driver = {"name": "surefoot", "version": version("surefoot"), "rules": rules}
    results = [_result(each, findings.checks, file) for each in findings.findings]
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"surefoot/{findings.recipe}/"},  # tells two logs of one upload apart
        "results": results,
        "columnKind": "unicodeCodePoints",
    }
    if findings.failure:
        notice = {"level": "error", "message": {"text": findings.failure}}
        run["invocations"] = [{"executionSuccessful": False, "toolExecutionNotifications": [notice]}]
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _result(finding: Finding, checks: tuple[str, ...], file: str) -> dict[str, Any]:
    told = f"{finding.seen}. {finding.why}. Remedy: {finding.remedy}."
    return {
        "ruleId": finding.check,
        "ruleIndex": checks.index(finding.check),
        "level": _LEVELS[finding.severity],
        "message": {"text": told},
        "locations": [_location(finding.where, file)],
    }


def _location(where: str, file: str) -> dict[str, Any]:
    """A line of a file; or the module or part that the finding names, at the top of the file that was checked."""
    line = re.fullmatch(r"(.+\.py):(\d+)(?: \(.+\))?", where)
    if line is not None:
        return {"physicalLocation": _place(line[1], int(line[2]))}
    named: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": where}]}
    return {"physicalLocation": _place(file, 1), **named} if file else named


def _place(file: str, line: int) -> dict[str, Any]:
    """A file below the working directory is named from there, so that the log means the same on another machine."""
    path = Path(file).resolve()
    artifact = (
        {"uri": quote(path.relative_to(Path.cwd()).as_posix()), "uriBaseId": ROOT}
        if path.is_relative_to(Path.cwd())
        else {"uri": path.as_uri()}
    )
    return {"artifactLocation": artifact, "region": {"startLine": line}}
