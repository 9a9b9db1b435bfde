"""`surefoot watch` names bugs in loops of other trainers and of torchrun, and is silent where there are none."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "bench"
LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--redirects", "3")
PLANTED = {
    "by_lightning": ('["loss"]\n', '["loss"].detach().requires_grad_()\n', "detached-loss"),
    "by_accelerate": ("        optimizer.zero_grad()\n", "", "missing-zero-grad"),
    "by_hf_trainer": ("learning_rate=1e-3", "learning_rate=0.0", "zero-learning-rate"),
    "two_ranks": ("sampler=DistributedSampler(data, seed=0)", "shuffle=False", "unsharded-data"),
}
"""In the script of that name: what is replaced, by what, and the check that names it."""
NEEDED = {"by_lightning": "lightning", "by_accelerate": "accelerate", "by_hf_trainer": "accelerate"}


def named(script: str, folder: Path, *, buggy: bool) -> list[list[str]]:
    """The errors and warnings of each process that watched a script of the bench."""
    before, after, _ = PLANTED[script]
    source = (BENCH / "watched" / f"{script}.py").read_text(encoding="utf-8")
    assert source.count(before) == 1
    file = folder / f"{script}.py"
    file.write_text(source.replace(before, after) if buggy else source, encoding="utf-8")
    launcher = (*LAUNCHER, "--log-dir", str(folder / "logs")) if script == "two_ranks" else ()
    command = [
        sys.executable,
        *launcher,
        "-m",
        "surefoot",
        "watch",
        str(file),
        "--json",
        "--",
        str(folder / "notes"),
        "6",
    ]
    paths = os.pathsep.join([str(BENCH), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env, cwd=folder)
    printed = [log.read_text() for log in sorted((folder / "logs").rglob("stdout.log"))] if launcher else [done.stdout]
    records = [json.loads(text[text.index("{") :]) for text in printed if text.endswith("}\n")]
    assert records, done.stderr[-2000:]
    return [
        [each["check"] for each in record["findings"]["findings"] if each["severity"] != "info"] for record in records
    ]


def test_ranks_that_torchrun_starts_name_what_is_wrong_between_them(tmp_path):
    found = named("two_ranks", tmp_path, buggy=True)
    assert all(each == ["unsharded-data"] for each in found)  # a rank that torchrun ends as it writes says nothing


@pytest.mark.long
@pytest.mark.parametrize("script", PLANTED)
@pytest.mark.parametrize("buggy", [True, False])
def test_a_loop_of_another_trainer_is_named_only_where_it_is_wrong(script, buggy, tmp_path):
    if importlib.util.find_spec(NEEDED.get(script, "torch")) is None:
        pytest.skip(f"pip install {NEEDED[script]}")
    expected = [PLANTED[script][2]] if buggy else []
    assert all(each == expected for each in named(script, tmp_path, buggy=buggy))
