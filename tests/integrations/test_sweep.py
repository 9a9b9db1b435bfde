"""Sweeps: what varies, what the plan prunes, what stops early, and that a killed sweep makes the same trials."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from surefoot.errors import RecipeError, RunError
from surefoot.records.run import read_run
from surefoot.records.search import Budget
from surefoot.records.sweep import Sweep, SweepTrial, read_sweep
from tests.command_line import surefoot as command
from tests.waiting import until

pytest.importorskip("optuna", reason="pip install optuna")
from surefoot.integrations.sweep.space import Axis, axes_of
from surefoot.integrations.sweep.sweep import sweep

RECIPE = str(Path(__file__).parent.parent / "swept.py")
WIDTHS = (8, 16, 32, 64, 1024, 2048, 4096, 8192)
BUDGET = Budget(memory_bytes=200_000)
"""The plans of the four smaller widths keep within it."""
SPACE = ("lr=1e-3..1e-1", f"width={','.join(map(str, WIDTHS))}")


def outcome(found: Sweep) -> list[SweepTrial]:
    """What must not depend on where a sweep was cut: all but the time it took, and the folder."""
    return [replace(each, seconds=0.0, run=Path(each.run).name) for each in found.trials]


def test_a_range_a_list_and_what_all_trials_share():
    axes, fixed = axes_of(RECIPE, ["lr=1e-4..1e-2", "width=8,16", "max_steps=5"])
    assert axes == [Axis("lr", low=1e-4, high=1e-2), Axis("width", (8, 16))]
    assert fixed == {"max_steps": 5}
    assert axes[0].is_log
    whole, _ = axes_of(RECIPE, ["width=8..12", "max_steps=10..1000"])
    assert [(each.whole, each.is_log) for each in whole] == [(True, False), (True, True)]


def test_the_values_of_a_knob_of_text_are_given_one_by_one():
    axes, fixed = axes_of(RECIPE, ["activation=tanh", "activation=relu", "lr=0.1"])
    assert axes == [Axis("activation", ("tanh", "relu"))]
    assert fixed == {"lr": 0.1}
    assert axes_of(RECIPE, ["activation=a,b", "lr=1..2"])[1] == {"activation": "a,b"}
    assert axes_of(RECIPE, ["precision=32-true,bf16-mixed"])[0] == [Axis("precision", ("32-true", "bf16-mixed"))]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lr=0.1"], "no knob varies; write a range, lr=1e-5..1e-3"),
        (["lr=1..0.1"], r"lr=1\.\.0\.1: a range begins with its smaller end"),
        (["widht=1,2"], "has no knob 'widht'; did you mean 'width'"),
        (["width=8,many"], "knob width='many' is not a whole number"),
        (["width"], "'width' is not a knob"),
    ],
)
def test_what_a_sweep_refuses(words, message, tmp_path):
    with pytest.raises(RecipeError, match=message):
        sweep(RECIPE, words, to=str(tmp_path / "s"))


def test_trials_whose_plan_exceeds_the_budget_never_run(tmp_path):
    found = sweep(RECIPE, SPACE, to=str(tmp_path / "s"), trials=8, budget=BUDGET)
    by_plan = [each for each in found.trials if each.state == "pruned by the plan"]
    assert {each.knobs["width"] >= 1024 for each in by_plan} == {True}
    assert all(each.knobs["width"] < 1024 for each in found.trials if each not in by_plan)
    assert all(each.memory_bytes > BUDGET.memory_bytes and not each.run for each in by_plan)
    ran = {each.run for each in found.trials if each.run}
    assert {str(each.parent) for each in tmp_path.glob("s/*/run.json")} == ran
    winner = found.winner
    assert winner.value == read_run(Path(winner.run)).evaluation_loss
    assert winner.value == min(each.value for each in found.trials if each.state == "finished")


def test_a_trial_that_falls_behind_is_stopped_and_its_run_can_go_on(tmp_path):
    found = sweep(RECIPE, ["lr=1e-6..1"], to=str(tmp_path / "s"), trials=9)
    stopped = [each for each in found.trials if each.state == "stopped early"]
    assert stopped
    for each in stopped:
        run = read_run(Path(each.run))
        assert (run.status, run.steps) == ("interrupted", each.steps)
        assert each.at[-1] == each.steps < 20


def test_a_metric_may_be_compared_and_higher_may_be_better(tmp_path):
    found = sweep(RECIPE, ["lr=1e-4..1e-1"], to=str(tmp_path / "s"), trials=3, best="error", early_stopping=False)
    assert found.winner.value == max(each.value for each in found.trials)
    assert found.winner.value == read_run(Path(found.winner.run)).metrics["error"]
    with pytest.raises(RecipeError, match="no evaluation has a 'eror': name one of the recipe's metrics"):
        sweep(RECIPE, ["lr=1e-4..1e-1"], to=str(tmp_path / "t"), trials=3, best="eror")


def test_settings_that_make_no_recipe_and_trainings_that_fail_are_said(tmp_path):
    found = sweep(RECIPE, ["width=7,9"], to=str(tmp_path / "s"), trials=2)
    assert {each.state for each in found.trials} == {"refused"}
    assert found.trials[0].reason == f"width={found.trials[0].knobs['width']} must be even"
    diverged = sweep(RECIPE, ["lr=1e37,1e38"], to=str(tmp_path / "t"), trials=1)
    assert (diverged.trials[0].state, diverged.winner) == ("failed", None)
    assert diverged.trials[0].reason == "RuntimeError: value cannot be converted to type float without overflow"


def test_the_same_setting_is_not_trained_twice(tmp_path):
    found = sweep(RECIPE, ["width=8,16"], to=str(tmp_path / "s"), trials=5, early_stopping=False)
    assert len(list(tmp_path.glob("s/trial-*"))) == len({each.knobs["width"] for each in found.trials})
    assert len([each for each in found.trials if each.reason.startswith("as trial")]) >= 3


def test_a_folder_with_another_sweep_or_with_files_is_refused(tmp_path):
    sweep(RECIPE, ["width=8,16"], to=str(tmp_path / "s"), trials=1)
    with pytest.raises(RunError, match="holds a sweep with other knobs, limits or seed"):
        sweep(RECIPE, ["width=8,32"], to=str(tmp_path / "s"), trials=1)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with pytest.raises(RunError, match="is not empty and holds no sweep"):
        sweep(RECIPE, ["width=8,16"], to=str(tmp_path / "other"), trials=1)


def test_more_trials_go_on_from_those_that_are_there(tmp_path):
    whole = sweep(RECIPE, SPACE, to=str(tmp_path / "whole"), trials=6, budget=BUDGET)
    sweep(RECIPE, SPACE, to=str(tmp_path / "parts"), trials=4, budget=BUDGET)
    assert outcome(sweep(RECIPE, SPACE, to=str(tmp_path / "parts"), trials=6, budget=BUDGET)) == outcome(whole)


def test_twenty_trials_killed_and_resumed_end_as_an_undisturbed_sweep(tmp_path):
    """Half of the widths do not fit. It is killed with -9 in a training, and once more later."""
    pause = "pause=0.02"
    words = ["sweep", RECIPE, *SPACE, pause, "save_every=2", "--trials", "20", "--budget", "memory=195.3125KiB"]
    whole = sweep(RECIPE, [*SPACE, pause, "save_every=2"], to=str(tmp_path / "whole"), trials=20, budget=BUDGET)
    pruned = [each for each in whole.trials if each.state == "pruned by the plan"]
    assert len(pruned) >= 5
    folder, errors = tmp_path / "cut", tmp_path / "errors"
    for trials in (1, 6):
        typed = [sys.executable, "-m", "surefoot", *words, "--to", str(folder)]
        with errors.open("w") as file:
            child = subprocess.Popen(typed, stdout=subprocess.DEVNULL, stderr=file, env=dict(os.environ))

        def in_a_training(trials: int = trials) -> bool:
            logs = [
                each
                for each in sorted(folder.glob("trial-*/log.jsonl"))
                if each.read_text().count("\n") in range(3, 18)
            ]
            known = read_sweep(folder)
            return bool(known and len(known.trials) >= trials and logs and logs[-1].parent.name > f"trial-{trials:03d}")

        until(in_a_training, process=child, output=errors)
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert len(read_sweep(folder).trials) < 20
    resumed = command(*words, "--to", str(folder), "--html", str(tmp_path / "page.html"))
    assert resumed.exit_code == 0, resumed.output
    assert outcome(read_sweep(folder)) == outcome(whole)
    assert read_sweep(folder).winner.value == whole.winner.value
    assert f"loss {whole.winner.value:.6g} with" in resumed.stdout
    page = (tmp_path / "page.html").read_text()
    assert page.count("<tr>") == 21
    assert "pruned by the plan" in page
