"""The bench of fine-tuning bugs: its programs, and how they are judged."""

from collections import Counter
from pathlib import Path

import pytest

from surefoot.checks.registry import CHECKS

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture(scope="module")
def finetune_bugs():
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(BENCH)
        patched.syspath_prepend(BENCH.parent)
        patched.setenv("OMP_NUM_THREADS", "1")  # the bench sets it, for itself; it is taken back here
        import finetune_bugs

        yield finetune_bugs


def test_every_program_compiles_and_half_of_the_bugs_are_held_out(finetune_bugs):
    programs = finetune_bugs.programs()
    assert Counter(each.side for each in programs if each.bug) == {"tuning": 30, "held_out": 30}
    assert sum(each.bug is None for each in programs) >= 20
    assert len({each.base for each in programs}) >= 12
    assert len({each.name for each in programs}) == len(programs)
    for each in programs:
        compile(each.source, each.name, "exec")


def test_every_bug_is_named_by_checks_that_exist(finetune_bugs):
    from corpus.finetune.expected import EXPECTED, MINOR

    assert {each.bug for each in finetune_bugs.programs() if each.bug} == set(EXPECTED)
    assert {name for names in EXPECTED.values() for name in names} <= set(CHECKS)
    assert set(EXPECTED) >= MINOR


@pytest.mark.parametrize(
    ("bug", "check", "severity", "verdict"),
    [
        ("merge", "merged-with-other-scaling", "warning", "named"),
        ("merge", "merged-with-other-scaling", "info", "missed"),
        ("merge", "loss-on-prompt", "error", "missed"),
        ("prompt-loss", "loss-on-prompt", "info", "named"),
        (None, "merged-with-other-scaling", "error", "wrong"),
        (None, "merged-with-other-scaling", "warning", "warned"),
        (None, "loss-on-prompt", "info", "clean"),
    ],
)
def test_only_the_right_name_loud_enough_counts(finetune_bugs, bug, check, severity, verdict):
    found = [{"check": check, "severity": severity}]
    row = {"bug": bug, "findings": found, "crashed": False, "side": "held_out", "base": "a"}
    assert finetune_bugs.verdict(row) == verdict
    assert finetune_bugs.verdict({**row, "crashed": True}) == "crashed"
    told = finetune_bugs.result([{**row, "verdict": verdict}])
    assert f"false_errors={int(verdict == 'wrong')}" in told
