"""Thirty of the kills of `bench/kills.py`, and proof that it would notice."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from surefoot.recipe.builtin import builtin_recipes

BENCH = Path(__file__).parent.parent / "bench"


RESULT = r"RESULT kills=(\d+) wrong=(\d+) orphans=(\d+)"
BROKEN = {
    "the optimizer is not restored": "import surefoot.checkpoint.state as it; it._restore_optimizer = lambda *_: None",
    "the data begins again": "import surefoot.data.batches as it, surefoot.training.run_data as user; "
    "user.batches_of = lambda recipe, first_step=0, **rest: it.batches_of(recipe, **rest)",
    "a step draws what comes": "import surefoot.step as it; it.seed_all = lambda seed: None",
}


def run(program: str) -> str:
    """Runs some Python beside the bench, and gives what it printed."""
    done = subprocess.run([sys.executable, "-c", program], cwd=BENCH, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_run_killed_thirty_times_ends_in_the_same_bits():
    said = run("import sys, kills; sys.argv[1:] = ['--quick']; kills.main()")
    found = re.search(RESULT, said.splitlines()[-1])
    assert found, said
    assert (int(found[1]), int(found[2]), int(found[3])) == (30, 0, 0), said
    assert re.search(r"^workers +killed +[1-9]", said, re.MULTILINE), said


@pytest.mark.long
def test_the_bench_notices_workers_that_live_on():
    untied = "import surefoot.data.batches as it; it.tied_to_this_process = lambda: None"
    said = run(f"import sys, kills; sys.argv[1:] = ['--kills', '30']; {untied}; kills.main()")
    found = re.search(RESULT, said.splitlines()[-1])
    assert found, said
    assert int(found[2]) == 0, said
    assert int(found[3]) > 0, said


@pytest.mark.sweep
def test_the_bench_notices_what_is_broken():
    parts = [f"if not os.fork():\n    {code}\n    kills.main()\n    os._exit(0)\nos.wait()" for code in BROKEN.values()]
    said = run("\n".join(["import os, sys, kills; sys.argv[1:] = ['--kills', '6']", *parts]))
    wrong = [int(found[2]) for found in re.finditer(RESULT, said)]
    assert len(wrong) == len(BROKEN), said
    assert all(wrong), said


def kill_every_recipe(each: int) -> None:
    said = run(f"import sys, kills; sys.argv[1:] = ['--recipes', '--kills', '{each}']; kills.main()")
    examples = [path for path in (BENCH.parent / "examples").glob("*.py") if "-> Recipe" in path.read_text()]
    kills = each * (len(builtin_recipes()) + len(examples))
    assert said.splitlines()[-1] == f"RESULT kills={kills} wrong=0 orphans=0", said


@pytest.mark.sweep
def test_every_recipe_killed_at_a_random_moment_ends_in_the_same_bits():
    kill_every_recipe(1)


@pytest.mark.long
def test_every_recipe_killed_at_three_random_moments_ends_in_the_same_bits():
    kill_every_recipe(3)


def test_a_run_whose_disk_is_wiped_after_each_of_five_kills_ends_in_the_same_bits():
    said = run("import sys, kills; sys.argv[1:] = ['--mirror', '--quick']; kills.main()")
    assert said.splitlines()[-1] == "RESULT kills=5 wrong=0", said
