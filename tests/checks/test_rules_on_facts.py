"""Every rule has a test on facts made by hand, and these tests need no torch."""

import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from surefoot.checks.registry import CHECKS, subject_of
from tests.tiers import QUICK_FILES

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FILES = sorted({HERE / subject_of(check) / "test_rules_on_facts.py" for check in CHECKS})
"""The files of these tests: one for each subject."""

ALONE = """
import sys, pytest
code = pytest.main(["--noconftest", "-p", "no:cacheprovider", "-q", "-rA", *sys.argv[1:]])
print("torch is imported" if "torch" in sys.modules else "torch is not imported")
sys.exit(code)
"""


@dataclass(frozen=True)
class Ran:
    """Tests that ran in a process of their own."""

    reported: frozenset[str]
    """The checks that reported the facts of their bug."""
    spared: frozenset[str]
    """The checks that spared facts: some that differ by a field, or a number on the other side of a limit."""
    torch: bool


def run(*words: str) -> Ran:
    """Runs tests without the fixtures of other tests, which import torch."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *words],
        cwd=ROOT,
        env={**os.environ, "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    passed = re.findall(r"^PASSED \S+::(\w+)\[(\S+)\]$", done.stdout, flags=re.MULTILINE)
    reported = {named(case) for test, case in passed if test == "test_a_rule_reports_the_facts_of_its_bug"}
    spared = {named(case) for test, case in passed if test != "test_a_rule_reports_the_facts_of_its_bug"}
    return Ran(frozenset(reported), frozenset(spared), "torch is imported" in done.stdout)


def named(case: str) -> str:
    """The check of a case: the longest name that it begins with."""
    return max((check for check in CHECKS if re.match(rf"{check}(?![a-z])", case)), key=len, default="")


def untested(checks: Iterable[str], ran: Collection[str]) -> list[str]:
    return [check for check in checks if check not in ran]


@pytest.fixture(scope="module")
def by_hand() -> Ran:
    return run(*map(str, FILES))


def test_every_rule_reports_the_facts_of_its_bug(by_hand: Ran):
    assert untested(CHECKS, by_hand.reported) == []
    assert untested([*CHECKS, "a-new-rule"], by_hand.reported) == ["a-new-rule"]


def test_every_rule_spares_the_nearest_facts_that_are_fine(by_hand: Ran):
    assert untested(CHECKS, by_hand.spared) == []
    assert untested([*CHECKS, "a-new-rule"], by_hand.spared) == ["a-new-rule"]


def test_these_tests_need_no_torch(by_hand: Ran):
    assert not by_hand.torch


def test_torch_would_be_noticed(tmp_path: Path):
    file = tmp_path / "test_it.py"
    file.write_text("def test_it():\n    import torch\n")
    assert run(str(file)).torch


def test_all_of_them_are_quick():
    assert {*FILES, Path(__file__)} <= QUICK_FILES
