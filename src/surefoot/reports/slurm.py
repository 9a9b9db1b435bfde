"""A planned layout as a job file for Slurm: nodes, ranks, a limit of time, and how the job resumes."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from surefoot.costs.saving import SHARED_DISK
from surefoot.errors import WorldError
from surefoot.hardware.cluster import DEVICES_PER_NODE
from surefoot.records.plan import Plan
from surefoot.reports.parts import host_text
from surefoot.units import counted, seconds_text

START_MINUTES = 15
"""What a job may take before its first step: starting ranks, planning, loading data, compiling."""
LEAST_WARNING, MOST_WARNING = 180, 3600
"""Seconds between the signal and the limit of time. Slurm may send the signal a minute early."""
RUN = '"$run"'
"""The run directory, as a job file names it."""
NO_PYTHON = "--no-python"
"""How torchrun is told that a command is not a Python file."""


@dataclass(frozen=True)
class Job:
    """What each rank runs, as words after `python` or `torchrun`, and whether running it again resumes."""

    words: tuple[str, ...]
    resumes: bool
    workers: int = 2
    """Processes that load data, for each rank."""


def slurm_text(plan: Plan, job: Job) -> str:
    """The job file. Words of the user stand after all `#SBATCH` lines, quoted."""
    nodes, per_node = _nodes(plan.ranks)
    name = re.sub(r"[^\w.-]+", "-", plan.recipe).strip("-.") or "surefoot"
    limit = _minutes(plan)
    warning = _warning(plan, limit)
    options = [
        f"job-name={name}",
        f"nodes={nodes}",
        "ntasks-per-node=1",
        f"cpus-per-task={per_node * (2 + job.workers)}",
        *([f"gpus-per-node={per_node}"] if plan.fit else []),
        *(["exclusive", "mem=0"] if per_node == DEVICES_PER_NODE else []),
        f"time={_clock(limit)}",
        f"output={name}-%j.out",
        "open-mode=append",
        *(["requeue", f"signal=B:USR1@{warning}"] if job.resumes else ["no-requeue"]),
    ]
    lines = ["#!/bin/bash", *_comments(plan, job, nodes, per_node), *(f"#SBATCH --{each}" for each in options), ""]
    body = _resuming(job, name, warning) if job.resumes else ["set -euo pipefail"]
    return "\n".join([*lines, *body, *_launched(plan.ranks, nodes, per_node, job), *_after(job), ""])


def _nodes(ranks: int) -> tuple[int, int]:
    """How many nodes, and how many ranks on each, as the plan assumes them."""
    if ranks > DEVICES_PER_NODE and ranks % DEVICES_PER_NODE:
        near = ranks - ranks % DEVICES_PER_NODE
        raise WorldError(
            f"{ranks} ranks do not fill nodes of {DEVICES_PER_NODE}, which the plan assumes: plan for {near} or "
            f"{near + DEVICES_PER_NODE}"
        )
    nodes = -(-ranks // DEVICES_PER_NODE)
    return nodes, ranks // nodes


def _minutes(plan: Plan) -> int:
    """The limit of time: the longest that four of five such runs take, and the start."""
    if plan.fit is not None and not plan.fit.fits:
        raise WorldError(f"{plan.recipe} does not fit {plan.fit.device}, so there is no job to write: see --fit")
    if plan.host is not None and not plan.host.fits:
        raise WorldError(f"{plan.recipe} does not fit its host, so there is no job to write: {host_text(plan)}")
    if plan.cost is None:
        raise WorldError(
            "the plan does not know how long the run takes, so the job has no limit of time: name GPUs with --on, and "
            "the number of steps with max_steps=N, or with --steps N for a script"
        )
    return START_MINUTES + math.ceil(plan.cost.seconds * plan.cost.high / 60)


def _warning(plan: Plan, limit: int) -> int:
    """How many seconds before the limit the ranks are asked to stop: two steps and a save fit in."""
    step = (
        0.0
        if plan.time is None
        else max(plan.time.seconds, plan.time.interval.high_seconds if plan.time.interval else 0)
    )
    needed = LEAST_WARNING + math.ceil(2 * step + plan.state_bytes / SHARED_DISK)
    return min(needed, MOST_WARNING, 60 * limit // 2)


def _clock(minutes: int) -> str:
    """As Slurm writes it: `2-21:30:00`."""
    days, rest = divmod(minutes, 24 * 60)
    return f"{days}-{rest // 60:02}:{rest % 60:02}:00"


def _comments(plan: Plan, job: Job, nodes: int, per_node: int) -> list[str]:
    device = plan.fit.device if plan.fit else "CPU"
    layout = f", {plan.layout}" if plan.layout else ""
    where = f"{counted(nodes, 'node')} of {counted(per_node, 'rank')} on {device}{layout}"
    high = "" if plan.cost is None else seconds_text(plan.cost.seconds * plan.cost.high)
    said = [
        f"{plan.recipe}: {where}. Written by `surefoot plan --launch slurm`.",
        "Submit it from the environment and the folder in which you run surefoot; all nodes must see that folder:",
        "sbatch --partition=NAME --account=NAME FILE",
        f"The limit of time is the upper end of the plan, {high}, and {START_MINUTES} minutes to start.",
    ]
    if job.resumes:
        said.append("With a shorter one (sbatch --time=...), the job saves, goes back into the queue, and resumes.")
    else:
        said.append("surefoot does not know whether this script resumes. If it does, write --requeue for --no-requeue.")
    return [f"# {' '.join(line.split())}" for line in said]


def _resuming(job: Job, name: str, warning: int) -> list[str]:
    return [
        "set -uo pipefail",
        f'run="${{RUN:-runs/{name}-$SLURM_JOB_ID}}"  # RUN=runs/first sbatch ... names another, or resumes it',
        "",
        "# Before the limit, Slurm signals this shell alone. It asks the ranks to save: srun would kill them.",
        "stopped=",
        "trap 'stopped=yes; scancel --signal=TERM \"$SLURM_JOB_ID\"' USR1",
        f"export TORCH_ELASTIC_SHUTDOWN_TIMEOUT={max(30, warning - 90)}  # torchrun gives its ranks 30 s, unless told",
        "",
    ]


def _launched(ranks: int, nodes: int, per_node: int, job: Job) -> list[str]:
    """The command, on as many nodes as there are. One node that ends first must not kill others that still save."""
    srun = 'srun --kill-on-bad-exit=0 --cpus-per-task="$SLURM_CPUS_PER_TASK"'
    end = " &" if job.resumes else ""
    if ranks == 1:
        alone = job.words[1:] if job.words[0] == NO_PYTHON else ("python", *job.words)
        return [f"{srun} {_quoted(alone)}{end}"]
    return [
        'head="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"',
        "port=$((15000 + SLURM_JOB_ID % 16000))  # below the ports that systems give away by themselves",
        f"{srun} torchrun \\",
        f"  --nnodes={nodes} --nproc-per-node={per_node} --rdzv-backend=c10d \\",
        '  --rdzv-id="$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}" --rdzv-endpoint="$head:$port" \\',
        f"  {_quoted(job.words)}{end}",
    ]


def _quoted(words: Iterable[str]) -> str:
    """Every word as one of the shell's. Only the run directory is the shell's own."""
    return " ".join(each if each == RUN else shlex.quote(each) for each in words)


def _after(job: Job) -> list[str]:
    if not job.resumes:
        return []
    return [
        "step=$!",
        'wait "$step"; code=$?',
        'if [ -n "$stopped" ]; then wait "$step"; code=$?; fi  # the signal had ended the first wait',
        "",
        "# 75 says: stopped, and can resume. torchrun makes 1 of it.",
        'if [ -n "$stopped" ] && [ "$code" -ne 0 ]; then exec scontrol requeue "$SLURM_JOB_ID"; fi',
        'exit "$code"',
    ]
