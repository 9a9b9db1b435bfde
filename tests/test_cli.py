"""The command line, as a person types it."""

import json
import os
import subprocess
import sys

import pytest

from surefoot.recipe.builtin import builtin_recipes
from tests.command_line import process as surefoot
from tests.conftest import SMALL

COMMANDS = (
    "plan",
    "check",
    "train",
    "sweep",
    "profile",
    "export",
    "evaluate",
    "merge",
    "generate",
    "chat",
    "predict",
    "look",
    "probe",
    "stuck",
    "watch",
    "explain",
    "report",
    "compare",
    "replay",
    "validate",
)


@pytest.mark.sweep
@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_every_help_says_what_the_command_does(command):
    done = surefoot(*command, "--help")
    assert done.returncode == 0
    assert len(done.stdout) > 400
    assert "<bool>" not in done.stdout
    for name in COMMANDS if not command else ("--json",):
        assert name in done.stdout


def test_lines_to_a_pipe_do_not_wrap(tmp_path):
    words = (
        "train",
        "gpt",
        "layers=1",
        "width=16",
        "heads=2",
        "context=16",
        "max_steps=2",
        "--run",
        "run",
        "--no-plan",
    )
    plain = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-m", "surefoot", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=plain, check=True)
    lines = done.stdout.splitlines()
    assert next(line for line in lines if line.startswith("step 2/2")).split("  ")[-1].startswith("data ")
    assert next(line for line in lines if line.startswith("memory: ")).count(",") >= 2
    assert max(map(len, lines)) > 80
    assert not any(line != line.rstrip() and len(line) > 300 for line in lines)


def test_surefoot_alone_is_its_help():
    assert "Know every training step before you take it" in surefoot().stdout


def test_the_whole_way_in_json_and_in_text(tmp_path):
    words = ["gpt", *SMALL["gpt"], "max_steps=6"]
    plan = json.loads(surefoot("plan", *words, "--json").stdout)
    assert plan["tokens_per_step"] == 256
    assert plan["knobs"]["layers"] == 2
    checked = surefoot("check", *words, "--json")
    assert checked.returncode == 0
    assert json.loads(checked.stdout)["findings"] == []
    trained = surefoot("train", *words, "--run", "run", "--json", cwd=tmp_path)
    run = json.loads(trained.stdout)
    assert run["status"] == "finished"
    assert run["last_loss"] < run["first_loss"]
    assert "step 6/6" in trained.stderr
    profile = json.loads(surefoot("profile", *words, "--steps", "2", "--json").stdout)
    assert profile["plan"]["steady"] == profile["profile"]["steady"]
    assert {entry["account"] for entry in profile["ledger"]["entries"]} >= {
        "memory/activations",
        "seconds/forward",
    }
    exported = json.loads(surefoot("export", "run", "--json", cwd=tmp_path).stdout)
    assert exported["program_difference"] <= exported["tolerance"]
    report = json.loads(surefoot("report", "run", "--json", cwd=tmp_path).stdout)
    assert len(report["logs"][0]) == 6
    assert report["report"]["sheets"][0]["went_as_planned"] is True
    text = surefoot("report", "run", cwd=tmp_path).stdout
    assert "finished after 6 steps" in text
    assert "the Python standard library's own sources" in text


@pytest.mark.sweep
def test_overrides_come_from_the_signature():
    done = surefoot("plan", "gpt", "layers=24", "width=1024", "heads=16", "--json")
    plan = json.loads(done.stdout)
    assert plan["parameters"] == 24 * (12 * 1024**2 + 4 * 1024) + 2 * 1024 + (256 + 128) * 1024
    assert plan["blocks"] == "24 blocks of blocks from runs with 3, 4 and 5"


@pytest.mark.sweep
def test_all_blocks_are_run_if_asked_for():
    words = ["gpt", "layers=20", "width=32", "heads=2", "context=32", "global_batch_tokens=256", "--json"]
    some, all_of_them = (json.loads(surefoot("plan", *words, *more).stdout) for more in ((), ("--no-reuse",)))
    assert (some.pop("blocks"), all_of_them.pop("blocks")) == ("20 blocks of blocks from runs with 3, 4 and 5", "")
    assert some == all_of_them


@pytest.mark.sweep
def test_a_plan_for_a_gpu_exits_with_0_whether_it_fits_or_not():
    """A plan is an answer, not a check."""
    words = ("layers=1", "width=16384", "heads=64", "--on", "t4")
    done = surefoot("plan", "gpt", *words)
    assert done.returncode == 0
    assert done.stdout.startswith("gpt does not fit t4, ")
    fit = json.loads(surefoot("plan", "gpt", *words, "--json").stdout)["fit"]
    assert fit["fits"] is False
    assert fit["total_bytes"] > fit["memory_bytes"] == int(14.75 * 2**30)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("plan", "gpt", "layer=3"),
            "gpt has no knob 'layer'; did you mean 'layers' or 'layers_every'? `surefoot plan gpt --help` lists all",
        ),
        (("plan", "gpt", "layers=x"), "knob layers='x' is not a whole number"),
        (("plan", "gpt", "width=100", "heads=3"), "width=100 is not a multiple of heads=3"),
        (
            ("train", "nothing"),
            "no recipe 'nothing'; built in: cruncher, distill, fashion, finetune, gan, gpt, hf, llama, ppo, ",
        ),
        (("report", "nowhere"), "there is no folder nowhere"),
        (("export", "nowhere"), "there is no folder nowhere"),
        (("watch", "nowhere.py"), "no script nowhere.py"),
        (("check", "gpt", "--allow", "nothing"), "no check is called 'nothing'"),
        (("plan", "fashion", "folder=nowhere"), "dataset-fashion-mnist"),
        (("plan", "gpt", "--on", "h100x"), "no datasheet for 'h100x'; did you mean 'h100-sxm' or"),
        (("plan", "gpt", "dp_shard=3", "--on", "8xh100-sxm"), "does not make 8 rank(s)"),
    ],
)
def test_what_is_refused_is_one_message_and_no_traceback(words, message):
    done = surefoot(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.sweep
def test_check_learns_one_batch_by_heart_and_exits_with_1_where_it_cannot():
    words = ("check", "regression", "samples=64", "--overfit", "--json")
    done = surefoot(*words)
    assert done.returncode == 0
    assert json.loads(done.stdout)["attempts"][-1]["outcome"] == "learned"
    failed = surefoot(*words, "--target-loss", "1e-9", "--steps", "20")
    assert failed.returncode == 1
    assert json.loads(failed.stdout)["findings"]["findings"][0]["check"] == "batch-not-learned"


@pytest.mark.sweep
def test_check_tries_a_range_of_learning_rates(tmp_path):
    words = ("check", "cruncher", *SMALL["cruncher"], "--lr-range", "--steps", "40")
    done = surefoot(*words, "--json", "--plot", "curve.svg", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["points"][0]["lr"] == 1e-7
    assert "<svg" in (tmp_path / "curve.svg").read_text()
    refused = surefoot(*words, "--plot", "curve.docx", cwd=tmp_path)
    assert refused.returncode == 2
    assert "curve.docx has no known picture format; known: " in refused.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--plot", "a.svg"), "--plot needs --lr-range"),
        (("--target-loss", "1", "--lr-range"), "--target-loss needs --overfit"),
        (("--steps", "3"), "--steps needs --overfit or --lr-range"),
        (("--overfit", "--lr-range"), "use one of --overfit, --lr-range and --probe"),
    ],
)
def test_check_refuses_options_that_do_not_go_together(words, message):
    done = surefoot("check", "regression", *words)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_finding_makes_check_exit_with_1(tmp_path):
    (tmp_path / "broken.py").write_text(
        "import torch\nfrom torch import nn\nfrom surefoot import Recipe\n"
        "def broken() -> Recipe:\n"
        "    return Recipe(\n"
        "        model=lambda: nn.Sequential(nn.Linear(4, 2), nn.Softmax(-1)),\n"
        "        data=lambda: torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,))),\n"
        "        loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),\n"
        "        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),\n"
        "        micro_batch_size=8, max_steps=2)\n"
    )
    done = surefoot("check", "broken.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "softmax-before-cross-entropy" in done.stdout
    allowed = surefoot("check", "broken.py", "--allow", "softmax-before-cross-entropy", cwd=tmp_path)
    assert allowed.returncode == 0


def test_the_help_names_every_recipe_and_the_knobs_of_one():
    told = " ".join(surefoot("--help").stdout.split())
    assert ", ".join(builtin_recipes()) in told
    knobs = surefoot("plan", "gpt", "--help").stdout
    assert "Knobs of gpt\n" in knobs
    assert "size=tiny" in knobs
    assert "one of tiny, small, gpt2, gpt2-medium" in knobs
    assert "save_every=10 min" in knobs
    assert "Knobs of" not in surefoot("plan", "--help").stdout


def test_a_knob_that_nothing_is_like_is_refused_in_one_line():
    assert surefoot("plan", "gpt", "zzz=3").stderr.splitlines() == [
        "error: gpt has no knob 'zzz'; `surefoot plan gpt --help` lists all"
    ]
