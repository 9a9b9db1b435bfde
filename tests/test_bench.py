"""A sample of the benches, as anyone can run them."""

import hashlib
import importlib
import json
import math
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from surefoot.meters import allocator

BENCH = Path(__file__).parent.parent / "bench"


@pytest.mark.sweep
@pytest.mark.skipif(not allocator.available(), reason="the truth is counted by a C++ library")
@pytest.mark.parametrize("part", range(8))
def test_planned_memory_is_within_two_hundredths_of_a_percent_of_the_allocator(part, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(BENCH))
    from memory_cases import QUICK, model_of

    assert len(QUICK) >= 16
    words = ["plan_memory.py", "--quick", "--models", ",".join(map(model_of, QUICK[part::8]))]
    done = subprocess.run([sys.executable, *words], cwd=BENCH, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = done.stdout.splitlines()[-1]
    found = re.fullmatch(r"RESULT cases=(\d+) worst_pct=([\d.]+) median_pct=([\d.]+) crashes=(\d+)", result)
    assert found, result
    assert int(found[1]) == len(QUICK[part::8])
    assert float(found[2]) <= 0.02, done.stdout
    assert int(found[4]) == 0, done.stdout


@pytest.mark.sweep
@pytest.mark.skipif(not allocator.available(), reason="the truth is counted by a C++ library")
def test_families_of_models_and_shapes_of_steps_are_planned():
    pytest.importorskip("transformers")
    cases = ("step/cholesky", "step/ctc", "step/closure", "vision/unet", "wav2vec2/ctc", "inkling_text/causal_lm")
    cases += ("finetune/llama-lora",)
    words = ["plan_families.py", "--only", ",".join(cases)]
    done = subprocess.run([sys.executable, *words], cwd=BENCH, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wanted = (
        "RESULT cases=6 planned=1.0000 within_0_1pct=1.0000 silent=0 silent_too_low=0 dies=0 times_out=0 off_said=0 "
        "off_silent=0 too_low=0 tracebacks=0"
    )
    assert done.stdout.splitlines()[-1] == wanted, done.stdout
    assert re.search(r"step/closure +refused .*closure", done.stdout), done.stdout


def test_twenty_families_stand_on_two_sides_each_in_a_file(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    families = importlib.import_module("families")
    tuning, held_out = families.SIDES["tuning"], families.SIDES["held_out"]
    assert len({*tuning, *held_out}) == 20
    files = {path.stem for path in BENCH.glob("families_held_out_*.py")}
    assert files == {f"families_held_out_{name}" for name in held_out}
    assert all((BENCH / f"families_{name}.py").exists() for name in tuning)


def test_recipes_of_families_tune_the_planner_by_the_dozen(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    families = importlib.import_module("families")
    cases = families.case_names("tuning")
    assert len(cases) >= 60
    counts = Counter(case.partition("/")[0] for case in cases)
    assert {*counts} == {*families.SIDES["tuning"]}
    assert min(counts.values()) >= 6


def test_held_out_are_sixty_recipes_six_of_each_family_and_no_other(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    families = importlib.import_module("families")
    cases = families.case_names("held_out")
    counts = Counter(case.partition("/")[0] for case in cases)
    assert counts == dict.fromkeys(families.SIDES["held_out"], 6)
    assert not {*cases} & {*families.case_names("tuning")}


@pytest.mark.sweep
@pytest.mark.skipif(not allocator.available(), reason="the truth is counted by a C++ library")
def test_plans_of_recipes_of_families_are_the_same_bytes_cold_warm_and_slow():
    pytest.importorskip("transformers")
    words = ["plan_families.py", "--families", "tuning", "--only", "odes/euler,periodic_optimizers/restarts", "--twice"]
    done = subprocess.run([sys.executable, *words], cwd=BENCH, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "RESULT cases=2 same=2", done.stdout


@pytest.mark.sweep
def test_planned_gpu_memory_and_speed_are_near_what_published_runs_took():
    done = subprocess.run([sys.executable, "public_runs.py", "--quick"], cwd=BENCH, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    name, *pairs = done.stdout.splitlines()[-1].split()
    result = {key: float(value) for key, value in (pair.split("=") for pair in pairs)}
    assert name == "RESULT", done.stdout
    assert result["source_heldout_median_pct"] <= 20, done.stdout
    assert result["p90"] <= 30, done.stdout
    assert result["memory_heldout_median_pct"] <= 5, done.stdout
    assert result["memory_heldout_p90_pct"] <= 12, done.stdout
    assert result["fit_right"] == 1, done.stdout
    assert "refused: 4 GPUs" in done.stdout


@pytest.mark.sweep
def test_planted_causes_of_spikes_are_attributed_and_clean_runs_to_nothing():
    done = subprocess.run([sys.executable, "spikes.py", "--quick"], cwd=BENCH, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wanted = "RESULT causes=5 attributed=5 misleading=0 cases=5 cases_attributed=5 no_spike=0 clean=2 clean_silent=2"
    assert done.stdout.splitlines()[-1] == wanted, done.stdout


@pytest.mark.sweep
def test_a_compiled_step_is_planned_with_about_as_many_kernels_as_inductor_makes():
    done = subprocess.run([sys.executable, "fused_regions.py", "--quick"], cwd=BENCH, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    name, *pairs = done.stdout.splitlines()[-1].split()
    result = {key: float(value) for key, value in (pair.split("=") for pair in pairs)}
    assert (name, result["models"]) == ("RESULT", 3), done.stdout
    assert result["kernels_worst_pct"] <= 20, done.stdout
    assert result["bytes_worst_pct"] <= 30, done.stdout


@pytest.mark.sweep
def test_predicted_seconds_are_near_those_of_a_step(tmp_path):
    words = ["plan_time.py", "--cpu", "lstm/fp32", "--out", str(tmp_path / "record.json")]
    done = subprocess.run([sys.executable, *words], cwd=BENCH, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(
        r"RESULT median_pct=([\d.]+) worst_pct=([\d.]+) flops_only_median_pct=([\d.]+)", done.stdout.splitlines()[-1]
    )
    assert found, done.stdout
    assert float(found[2]) < 60, done.stdout  # processor seconds, and neighbours share the caches
    (case,) = json.loads((tmp_path / "record.json").read_text())["cases"]
    assert set(case["predicted"]) == {"flops_only", "roofline", "measured"}


@pytest.mark.parametrize("file", ["public_runs.jsonl", "public_fits.jsonl"])
def test_half_of_the_published_runs_are_held_out_by_a_hash_of_their_names(file):
    """The split was written before any prediction; a row that changes sides would show here."""
    rows = [json.loads(line) for line in (BENCH / file).read_text().splitlines()]
    groups = defaultdict(list)
    for row in rows:
        groups[row["source"], row["n_gpus"] == 1].append(row)
    for group in groups.values():
        ordered = sorted(group, key=lambda row: hashlib.sha256(row["id"].encode()).hexdigest())
        assert [row["held_out"] for row in ordered] == [index % 2 == 0 for index in range(len(ordered))]


def test_every_published_speed_is_rebuilt_or_has_a_reason(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    speeds = importlib.import_module("public_speeds")
    rows = speeds.read()
    assert len(rows) == len({row["id"] for row in rows}) == 1872
    groups, refused = speeds.sampled(rows, every=1)
    rebuilt = [row for group in groups for row in group]
    assert len(rebuilt) + len(refused) == len(rows)
    assert all(row["refused"] for row in refused)
    assert all(speeds.published(row) > 0 for row in rebuilt)
    assert {speeds.lab_of(row) for row in rebuilt} == {
        "fms-fsdp", "hf-transformers", "internevo", "litgpt", "llm-foundry", "modded-nanogpt", "tinyllama",
        "torchtitan", "torchtune",
    }  # fmt: skip


def test_a_source_is_predicted_by_constants_that_it_did_not_see(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    fit = importlib.import_module("public_fit")

    class Row:
        """A run that takes so many times what the constants say of its share of peak."""

        compiled, generation = False, "8.0"

        def __init__(self, lab, share):
            self.lab, self.share = lab, share

        def miss(self, values):
            return math.log(values["8.0"] / self.share)

    rows = [Row("a", 0.8), Row("a", 0.8), Row("b", 0.8), Row("c", 0.9), Row("c", 0.9)]
    found = {each.row: each for each in fit.held_out(rows)}
    without_c = fit.fitted([row for row in rows if row.lab != "c"])
    assert found[rows[-1]].miss == pytest.approx(rows[-1].miss(without_c))
    assert not found[rows[-1]].inside  # the others say nothing of such an error
    assert fit.spread([("one", miss / 10) for miss in range(11)]) == (0.1, 0.9)


@pytest.mark.long
def test_models_in_formats_are_written_and_compared():
    pytest.importorskip("onnxruntime")
    done = subprocess.run([sys.executable, "exports.py", "--quick"], cwd=BENCH, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 of 12 cells written, 0 beyond their tolerance" in done.stdout


@pytest.mark.long
@pytest.mark.skipif(not allocator.available(), reason="the truth is counted by a C++ library")
def test_plans_of_scripts_agree_with_the_scripts_really_run(tmp_path):
    words = ["plan_scripts.py", "--side", "tuning", "--only", "vae", "--here", "--out", str(tmp_path / "record.json")]
    done = subprocess.run([sys.executable, *words], cwd=BENCH, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wanted = (
        "RESULT cases=1 planned=1.0000 compared=1 within_0_1pct=1.0000 off_and_said=0 silent_misses=0 outside_writes=0"
    )
    assert done.stdout.splitlines()[-1] == wanted, done.stdout


def test_a_range_of_steps_excuses_a_plan_only_if_it_holds_the_truth(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    bench = importlib.import_module("plan_scripts")
    plan = {"peak": 12 << 20, "script": ["its steps differ: 10.00 MiB to 12.00 MiB at their peaks"], "assumptions": []}
    assert bench.judged({"peak": 11 << 20}, plan)["verdict"] == "off, said"
    assert bench.judged({"peak": 13 << 20}, plan)["verdict"] == "off, silent"
    assert bench.judged({"peak": 12 << 20}, plan)["verdict"] == "near"
