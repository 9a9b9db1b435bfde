"""A sample of the benches, as anyone can run them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from surefoot.meters import allocator

BENCH = Path(__file__).parent.parent / "bench"


@pytest.mark.skipif(not allocator.available(), reason="the truth is counted by a C++ library")
def test_planned_memory_is_within_two_hundredths_of_a_percent_of_the_allocator():
    pytest.importorskip("transformers")
    done = subprocess.run([sys.executable, "plan_memory.py", "--quick"], cwd=BENCH, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = done.stdout.splitlines()[-1]
    found = re.fullmatch(r"RESULT cases=(\d+) worst_pct=([\d.]+) median_pct=([\d.]+) crashes=(\d+)", result)
    assert found, result
    assert int(found[1]) >= 16
    assert float(found[2]) <= 0.02, done.stdout
    assert int(found[4]) == 0, done.stdout
