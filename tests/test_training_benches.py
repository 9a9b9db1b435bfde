"""A sample of the benches of training, without the peers that they install."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "bench"


def last_line(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], cwd=BENCH, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.sweep
def test_an_interrupted_run_goes_on_exactly():
    assert last_line("resume.py", "--quick", "--trainers", "surefoot") == "RESULT exact=6 of=6"


@pytest.mark.sweep
def test_training_costs_little_more_than_a_loop_written_by_hand():
    """Loosely, because a machine that runs tests is not a quiet one."""
    said = last_line("overhead.py", "--quick", "--trainers", "surefoot")
    result = {name: float(value) for name, value in (word.split("=") for word in said.split()[1:])}
    assert result["surefoot_over_bare_cpu"] > 0.85, said
    assert result["save_stall_over_clone"] < 3, said


@pytest.mark.sweep
def test_a_watched_script_computes_the_same_losses_and_is_booked_as_a_profile_is():
    said = last_line("watch.py", "--quick", "--steps", "5")
    assert "scripts=1 identical_losses=1 equal_tallies=1" in said
