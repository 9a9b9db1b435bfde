"""The bench of raised errors: its programs, and how an explanation is judged."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.waiting import has_ended, until

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture(scope="module")
def loud_bugs():
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(BENCH)
        patched.syspath_prepend(BENCH.parent)
        patched.setenv("OMP_NUM_THREADS", "1")  # the bench sets it, for itself; it is taken back here
        import loud_bugs

        yield loud_bugs


def test_every_program_compiles_and_has_lines_at_fault(loud_bugs):
    programs = loud_bugs.programs()
    assert Counter(each.side for each in programs) == {"tuning": 160, "held_out": 40}
    assert len({each.name for each in programs}) == len(programs)
    for each in programs:
        compile(each.source, each.name, "exec")
        assert each.lines, each.name
        assert all(each.said), each.name
        assert loud_bugs.MARK not in each.source
        assert each.arguments, "a program of kind memory needs the comment that states its limit"


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        ("Explained (a.py:9): `head` takes 4\\n    a.py:3  x\\nFix: do\\nYour code raised this", "named"),
        ("Explained (a.py:9): `head` takes 4\\nFix: do\\nYour code raised this", "misleading"),
        ("Explained (a.py:3): `body` takes 4\\nFix: do\\nYour code raised this", "misleading"),
        ("Explained (a.py:9): what met\\n  x: (4,)\\nYour code raised this", "facts only"),
        ("RuntimeError: 4\\nYour code raised this", "missed"),
        ("error: the loss of step 1 is nan: head, 4, a.py:3\\n", "named"),
        ("Rank 0 is in head: 4.\\n\\nprocess  who  line\\n7  rank 0  a.py:3 in main", "named"),
        ("Not stuck: head computes 4.\\n\\nprocess  who  line\\n7  rank 0  a.py:3 in main", "misleading"),
        ("But none of them waits in a place that is known\\nprocess  who  line\\n7  rank 0  a.py:3", "facts only"),
    ],
)
def test_a_cause_counts_only_with_its_line(loud_bugs, told, verdict):
    program = loud_bugs.Program("a/shapes/b", "tuning", "a", "", ("head", "4"), (3,))
    assert loud_bugs.judged(program, told.replace("\\n", "\n"))["verdict"] == verdict


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_script_that_hangs_leaves_no_process_behind(loud_bugs, tmp_path):
    from bugs.hangs import hanging

    from surefoot.debug.hangs.processes import tree_of

    script = tmp_path / "train.py"
    script.write_text("import time\ntime.sleep(1000)\n")
    started = []

    def fail():
        with hanging(script) as pid:
            started.extend(each.pid for each in tree_of(pid))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(started) == 3  # torchrun and two ranks, in sessions of their own
    until(lambda: all(map(has_ended, started)))
