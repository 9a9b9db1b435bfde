"""The bench of silent bugs: its split is the rule's, its programs are many and compile, its verdicts are sound."""

import sys
from collections import Counter
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "bench"
sys.path.insert(0, str(BENCH))
with pytest.MonkeyPatch.context() as patched:
    patched.setenv("OMP_NUM_THREADS", "1")  # the bench sets it, for itself; it is taken back here
    import silent_bugs
    from bugs.forks import Forks, loaded_by
    from bugs.verify import planted
    from corpus import programs as edits
    from corpus.expected import EXPECTED, MINOR, detected
    from corpus.programs import programs
    from corpus.split import HELD_OUT, folder


def test_bases_lie_on_the_side_that_their_names_give():
    files = (BENCH.parent / "corpus").glob("*/*.py")
    apart = ("clean", "meaning", "blind", "probe", "finetune")
    sides = {path.stem: path.parent.name for path in files if path.parent.name not in apart}
    assert sides
    assert sides == {base: folder(base) for base in sides}
    assert sorted(HELD_OUT) == sorted(base for base, side in sides.items() if side == "held_out")


def test_counts_hold_and_held_out_bugs_are_spread_evenly():
    buggy = [program for program in programs() if program.bug]
    clean = [program for program in programs() if not program.bug]
    assert len(buggy) >= 4400
    assert len(clean) >= 1740
    held = Counter(program.bug for program in buggy if program.held_out)
    assert held.total() >= 250
    assert len(held) >= 100
    assert max(held.values()) <= 20
    assert sum(program.held_out for program in clean) >= 110


def test_a_quick_sample_is_of_both_sides_alike():
    sample = silent_bugs.quick(list(programs()))
    assert len(sample) == silent_bugs.QUICK_PROGRAMS
    assert sum(program.held_out for program in sample) * 2 == len(sample)
    one_side = silent_bugs.quick([program for program in programs() if program.held_out])
    assert len(one_side) == silent_bugs.QUICK_PROGRAMS
    assert sum(program.bug is None for program in one_side) * 3 == len(one_side)


def test_every_program_compiles_and_differs_from_what_it_was_made_of():
    bases = {program.base: program.source for program in programs() if not program.bug and not program.title}
    for program in programs():
        compile(program.source, program.name, "exec")
        assert (program.source == bases[program.base]) == (program.bug is None and not program.title), program.name


def test_every_bug_has_its_entry_in_the_table_of_names():
    assert {program.bug for program in programs() if program.bug} <= set(EXPECTED)
    assert set(EXPECTED) >= MINOR


def test_the_names_in_the_table_are_checks():
    from surefoot.checks.registry import CHECKS

    assert {name for names in EXPECTED.values() for name in names} <= set(CHECKS)


def test_only_the_right_name_loud_enough_is_a_detection():
    error = {"check": "missing-zero-grad", "severity": "error"}
    assert detected("AUTO-01", [error])
    assert not detected("AUTO-01", [{**error, "severity": "info"}])
    assert not detected("AUTO-02", [error])
    assert detected("PERF-06", [{"check": "anomaly-mode-in-training", "severity": "info"}])


def test_an_edit_must_find_its_place_once():
    edit = edits._edit("AUTO-05 title\n loss.backward()\n+optimizer.zero_grad()\n")
    assert edits.apply(edit, "if True:\n    loss.backward()\n", {}) == (
        "if True:\n    loss.backward()\n    optimizer.zero_grad()\n"
    )
    for source in ("pass\n", "loss.backward()\nloss.backward()\n"):
        with pytest.raises(edits.NoSuchPlace):
            edits.apply(edit, source, {})


def test_planted_lines_are_those_that_an_edit_wrote():
    assert planted("a\nb\nc\n", "a\nx\nc\nd\n") == {2, 4}
    assert planted("a\nb\n", "a\n") == set()


def test_a_buggy_and_a_clean_program_are_judged_through_the_door(tmp_path):
    chosen = {name: next(p for p in programs() if p.name == name) for name in ("mlp_prices/clean", "mlp_recipe/clean")}
    buggy = next(p for p in programs() if p.name == "mlp_prices/AUTO-01/no-zero_grad")
    forks = Forks(sys.executable, loaded_by([buggy.source]))
    try:
        rows = [silent_bugs.look(program, tmp_path, forks) for program in (*chosen.values(), buggy)]
    finally:
        forks.close()
    assert not any(row["crashed"] for row in rows), rows
    assert [bool(silent_bugs.alarms(row, "error")) for row in rows] == [False, False, True], rows
    theirs = {name: {"rate": "n/a"} for name in ("traincheck", "torchfix")}
    assert silent_bugs.result(rows, theirs).startswith("RESULT programs=3 detected_heldout=nan false_errors=0 ")
    assert "| AUTO | 1 | 1/1 100.0% | - |" in silent_bugs.table(rows)


def test_every_program_of_probe_compiles_and_expects_what_there_is():
    import probe

    from surefoot.debug.probe.probe import CHECKS

    found = [each for each in probe.scripts() if compile(each.source, each.name, "exec")]
    assert len({each.name for each in found}) == len(found)
    assert sum(bool(each.expected) for each in found) == 15
    assert {name for each in found for name in each.expected} <= set(CHECKS)


def test_every_program_of_meaning_compiles():
    import meaning

    kinds = [each.kind for each in meaning.scripts() if compile(each.source, each.name, "exec")]
    assert (kinds.count("MEAN"), kinds.count("MECH"), kinds.count("clean")) == (88, 66, 66)
