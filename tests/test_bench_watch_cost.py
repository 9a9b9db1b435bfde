"""bench/watch_cost.py: the budget that it compares with, and that a measured script is not measured again."""

import importlib
import json
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("watch_cost")


@pytest.fixture
def runs(bench, monkeypatch):
    """A script's start takes a second, each of its updates a hundredth, and watching it 3 seconds more."""
    made = []

    def run(script, kind, updates):
        made.append((script, kind, updates))
        return bench.Cost(1 + updates / 100 + 3 * (kind == "watched"), 0.0, [0.5] + [0.01] * (updates - 1), 0)

    monkeypatch.setattr(bench, "run", run)
    return made


def test_thirty_scripts_take_one_to_thirty_seconds(bench, runs):
    assert len(bench.SCRIPTS) == 30
    meant = [1 + bench._updates_for(script) / 100 for script in bench.SCRIPTS]
    assert meant == sorted(meant)
    assert meant[0] == pytest.approx(1.2)  # no script runs for less than the pilot
    assert meant[-1] == pytest.approx(30.0)
    assert {(kind, updates) for _, kind, updates in runs} == {("bare", bench.PILOT)}


def test_a_script_is_within_the_budget_up_to_two_seconds_and_a_quarter_of_its_own(bench, runs, capsys):
    short, long = bench.SCRIPTS[0], bench.SCRIPTS[-1]
    bench.within([short, long], updates=None, out=None, table=True)
    printed = capsys.readouterr().out
    assert f"| `{short}` | 20 | 1.2 | 4.2 | **3.0** | 2.3 |" in printed
    assert f"| `{long}` | 2900 | 30.0 | 33.0 | 3.0 | 9.5 |" in printed
    assert printed.splitlines()[-1].startswith("RESULT scripts=2 within=1 ")


def test_rows_that_are_kept_are_not_measured_again(bench, runs, tmp_path, capsys):
    some = list(bench.SCRIPTS[:2])
    bench.within(some[:1], updates=None, out=tmp_path / "rows.json", table=False)
    runs.clear()
    bench.within(some, updates=None, out=tmp_path / "rows.json", table=False)
    assert {script for script, _, _ in runs} == {some[1]}
    assert list(json.loads((tmp_path / "rows.json").read_text())["scripts"]) == some
    assert "RESULT scripts=2" in capsys.readouterr().out
