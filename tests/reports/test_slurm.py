"""Job files for Slurm: their options are those of the plan, their words are quoted, and their signals are handled."""

import os
import re
import shlex
import shutil
import signal
import subprocess
from datetime import timedelta

import pytest
from typer.testing import CliRunner

from surefoot.cli.main import app
from surefoot.errors import WorldError
from surefoot.records.plan import Fit, Plan, RunCost
from surefoot.records.step_time import Interval, StepTime
from surefoot.reports.slurm import RUN, START_MINUTES, Job, slurm_text
from tests.waiting import text_in

TRAIN = ("-m", "surefoot", "train", "gpt", "layers=2", "--dir", RUN)
WORDS = ("$(rm -rf ~)", "it's", 'a "b"', "`id`", "two words", "x\n#SBATCH --nodes=99\ny", "*", "-", "", "\\")


def plan(
    ranks: int = 16, *, seconds: float = 200_000.0, high: float = 1.5, recipe: str = "gpt", fits: bool = True
) -> Plan:
    cost = RunCost(10, 80, ranks, 1.0, 0, 0, seconds, 1, 0, None, 192, None, None, None, low=0.5, high=high)
    time = StepTime(4.0, interval=Interval(2.0, 7.0, "like steps"))
    fit = Fit("h100-sxm", 1000, 10, "classic", 500, fits)
    more = {"ranks": ranks, "fit": fit, "time": time, "cost": cost, "state_bytes": 20 * 10**9, "layout": "dp_shard=8"}
    return Plan(recipe, "", {}, 7, 8, 1, 10, **more)


def options(text: str) -> dict[str, str]:
    """The options that Slurm would read: those above the first command."""
    found = {}
    for line in text.splitlines()[1:]:
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith("#SBATCH --"):
            name, _, value = line.removeprefix("#SBATCH --").partition("=")
            found[name] = value
    return found


def seconds(clock: str) -> float:
    days, hours, minutes, rest = map(int, re.fullmatch(r"(\d+)-(\d\d):(\d\d):(\d\d)", clock).groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=rest).total_seconds()


def checked(text: str, *more: str) -> str:
    """A job file that bash can read. shellcheck, if it is here, finds nothing in it."""
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "--shell=bash", *more, "-"], input=text, text=True, check=True)
    return text


def launched(text: str) -> list[str]:
    """The words after srun, as the shell splits them."""
    joined = text.replace("\\\n", " ")
    start = joined.index("\nsrun ") + 1
    words = shlex.split(joined[start:], comments=False)
    return words[: words.index("&")] if "&" in words else words


@pytest.mark.parametrize(("ranks", "nodes", "per_node"), [(1, 1, 1), (2, 1, 2), (8, 1, 8), (16, 2, 8), (1024, 128, 8)])
def test_the_options_are_those_of_the_plan(ranks, nodes, per_node):
    text = checked(slurm_text(plan(ranks), Job(TRAIN, resumes=True, workers=3)))
    found = options(text)
    assert (found["nodes"], found["ntasks-per-node"], found["gpus-per-node"]) == (str(nodes), "1", str(per_node))
    assert int(found["nodes"]) * int(found["gpus-per-node"]) == ranks
    assert int(found["cpus-per-task"]) == per_node * 5
    assert ("exclusive" in found) == (per_node == 8)
    assert seconds(found["time"]) == 300_000 + 60 * START_MINUTES
    assert "requeue" in found
    name, at = re.fullmatch(r"B:(\w+)@(\d+)", found["signal"]).groups()
    assert name == "USR1"
    assert 60 + 2 * 7 + 200 <= int(at) < seconds(found["time"]) / 2
    assert found["job-name"] == "gpt"


def test_torchrun_reads_its_words():
    from torch.distributed.run import get_args_parser

    words = launched(slurm_text(plan(16), Job((*TRAIN[:-2], *WORDS, "--dir", RUN), resumes=True)))
    asked = get_args_parser().parse_args(words[words.index("torchrun") + 1 :])
    assert (asked.nnodes, asked.nproc_per_node, asked.rdzv_backend) == ("2", "8", "c10d")
    assert asked.rdzv_endpoint == "$head:$port"
    assert (asked.module, asked.training_script) == (True, "surefoot")
    assert asked.training_script_args == ["train", "gpt", "layers=2", *WORDS, "--dir", "$run"]


@pytest.mark.parametrize("ranks", [1, 8])
def test_no_word_of_a_user_is_read_by_bash_or_by_slurm(ranks, tmp_path):
    recipe = "a\n#SBATCH --nodes=98\n$(touch made)"
    text = slurm_text(plan(ranks, recipe=recipe), Job(("train.py", *WORDS), resumes=False))
    checked(text, "--exclude=SC2016,SC1003")  # hints that a word in single quotes looks like code
    found = options(text)
    assert found["nodes"] == "1"
    assert "no-requeue" in found
    assert "signal" not in found
    assert re.fullmatch(r"[\w.-]+", found["job-name"])
    words = launched(text)
    assert tuple(words[words.index("train.py") + 1 :]) == WORDS


def test_a_run_that_does_not_fit_or_does_not_end_has_no_job():
    with pytest.raises(WorldError, match="does not fit"):
        slurm_text(plan(fits=False), Job(TRAIN, resumes=True))
    with pytest.raises(WorldError, match="max_steps=N"):
        slurm_text(Plan("gpt", "", {}, 7, 8, 1, None), Job(TRAIN, resumes=True))
    with pytest.raises(WorldError, match="plan for 8 or 16"):
        slurm_text(plan(12), Job(TRAIN, resumes=True))


STUBS = {
    "srun": 'trap "sleep 1; exit $ENDS" TERM\necho $$ >pid\n[ "$STAYS" ] || exit "$ENDS"\nwhile :; do sleep 0.1; done',
    "scancel": 'echo "$@" >>told\nkill -TERM "$(cat pid)"',
    "scontrol": 'if [ "$1" = requeue ]; then echo "$@" >>told; else echo node1; echo node2; fi',
}


@pytest.mark.parametrize(
    ("signalled", "ends", "told", "code"),
    [
        (True, 75, ["--signal=TERM 7", "requeue 7"], 0),  # stopped by the limit: it resumes
        (True, 1, ["--signal=TERM 7", "requeue 7"], 0),  # what torchrun makes of 75
        (True, 0, ["--signal=TERM 7"], 0),  # the last step ended after the signal
        (False, 1, [], 1),  # a failure is no reason to run again
        (False, 0, [], 0),
    ],
)
def test_before_the_limit_the_ranks_save_and_the_job_goes_back_into_the_queue(tmp_path, signalled, ends, told, code):
    for name, body in STUBS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    more = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_CPUS_PER_TASK": "2", "ENDS": str(ends)}
    env = {**os.environ, **more, "PATH": path, "STAYS": "yes" if signalled else ""}
    (tmp_path / "job").write_text(slurm_text(plan(16), Job(TRAIN, resumes=True)))
    job = subprocess.Popen(["bash", "job"], cwd=tmp_path, env=env)
    if signalled:
        text_in(tmp_path / "pid")
        job.send_signal(signal.SIGUSR1)
    assert job.wait(120) == code
    file = tmp_path / "told"
    assert (file.read_text().splitlines() if file.exists() else []) == told


def test_a_recipe_becomes_a_job():
    words = [
        "plan",
        "gpt",
        "layers=1",
        "micro_batch_size=2",
        "max_steps=50",
        "--on",
        "16xh100-sxm",
        "--launch",
        "slurm",
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert options(checked(result.stdout))["nodes"] == "2"
    assert launched(result.stdout)[-5:] == ["layers=1", "micro_batch_size=2", "max_steps=50", *TRAIN[-2:-1], "$run"]


SCRIPT = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(8, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(5):
    loss = model(torch.randn(4, 8, device=device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_script_with_a_launcher_becomes_a_job(tmp_path):
    (tmp_path / "own script.py").write_text(SCRIPT)
    script = str(tmp_path / "own script.py")
    words = ["plan", "--on", "8xh100-sxm", "--steps", "9", "--launch", "slurm", "--"]
    result = CliRunner().invoke(app, [*words, "torchrun", "--nproc-per-node", "8", script, "--lr", "1 2"])
    assert result.exit_code == 0, result.output
    found = options(checked(result.stdout))
    assert (found["nodes"], found["gpus-per-node"]) == ("1", "8")
    assert launched(result.stdout)[-3:] == [script, "--lr", "1 2"]


@pytest.mark.parametrize("other", ["--json", "--fit", "--ci"])
def test_a_job_is_printed_alone(other):
    result = CliRunner().invoke(app, ["plan", "gpt", "--on", "h100-sxm", "--launch", "slurm", other])
    assert result.exit_code == 2
