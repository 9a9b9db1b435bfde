"""The bench of memory limits, on its smallest model: the named setting fits, and the others do not."""

import sys
from contextlib import closing
from pathlib import Path

import pytest

from surefoot.meters import allocator

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture
def memory_limit(monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the bench sets it, for itself; it is taken back here
    import memory_limit

    return memory_limit


@pytest.mark.long
@pytest.mark.skipif(not allocator.available(), reason="no C++ compiler")
def test_the_named_setting_of_one_model_fits_and_the_others_do_not(memory_limit, tmp_path):
    with closing(memory_limit.Forks(sys.executable, list(memory_limit.ALWAYS), raising=False)) as forks:
        row = memory_limit.measured("mlp", tmp_path / "mlp", forks)
    assert memory_limit.result([row]) == "RESULT models=1 named_fits=1 before_fits=0 beyond=1 beyond_fits=0"


def test_a_model_without_a_setting_counts_as_one_that_does_not_fit(memory_limit):
    rows = [{"model": "a", "before_fits": False}, {"model": "b", "before_fits": True}]
    assert memory_limit.result(rows) == "RESULT models=2 named_fits=0 before_fits=1 beyond=0 beyond_fits=0"
