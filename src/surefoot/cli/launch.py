"""The part of `surefoot plan` that writes a job file: `--launch slurm`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from surefoot.errors import WorldError

if TYPE_CHECKING:
    from surefoot.recipe.recipe import Recipe
    from surefoot.records.plan import Plan
    from surefoot.reports.slurm import Job


def launch_recipe(record: Plan, target: str, words: Sequence[str], recipe: Recipe) -> None:
    """Prints the job that trains a recipe as it was planned. Under torchrun, `--dir` names the run."""
    from surefoot.reports.slurm import RUN, Job

    train = ("-m", "surefoot", "train", target, *words, "--dir", RUN)
    _print(record, Job(train, resumes=True, workers=2 if recipe.workers == "auto" else recipe.workers))


def launch_script(record: Plan, command: Sequence[str]) -> None:
    """Prints the job that runs a script as it was planned."""
    from surefoot.planning.scripts.launch import launch_of
    from surefoot.reports.slurm import Job

    if Path(command[0]).name == "accelerate":
        raise WorldError("--launch writes torchrun: plan the script as `torchrun --nproc-per-node N train.py`")
    _print(record, Job(launch_of(command).words, resumes=False))


def _print(record: Plan, job: Job) -> None:
    from surefoot.reports.slurm import slurm_text

    print(slurm_text(record, job), end="")
