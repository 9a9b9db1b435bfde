"""python -m trainers MODULE: reads names of jobs, and forks for each of them.

The process has loaded everything and computed nothing, so that each child is as fresh as a new process and starts in
milliseconds. When a child has ended, however it did, a line says so. A job that is only timed stands still after every
block of steps, says how long it took, and goes on when it reads a line.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded: the same for every trainer

import torch
import torch._dynamo  # the first optimizer would load it, in every child anew

from trainers.job import Job, read_job
from trainers.listener import Train, Witness
from trainers.works import TIMED, work


class Blocks:
    """Ends a block every so many steps: tells how long it took, in seconds and in CPU seconds of all threads."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._began = self._now()

    def step_ended(self, step: int) -> None:
        if step % self.steps:
            return
        say(json.dumps([now - began for now, began in zip(self._now(), self._began, strict=True)]))
        if sys.stdin.readline().strip() != "go":
            os._exit(0)
        self._began = self._now()

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), time.process_time()


def serve(train: Train) -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.setsid()
            run_and_exit(train, read_job(Path(line.strip())))
        os.waitpid(child, 0)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # worker processes that outlived it
        say("done")


def run_and_exit(train: Train, job: Job) -> None:
    try:
        run(train, job) if job.resumable else train(TIMED[job.work](), job, Blocks(job.knobs["block"]))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def run(train: Train, job: Job) -> None:
    """One process of a trainer, and its answer."""
    witness = Witness(Path(job.answer), job.stop)
    recipe = witness.watched(work(job.work, steps=job.steps, **job.knobs))
    try:
        witness.finished(train(recipe, job, witness))
    except BaseException as error:
        witness.failed(error)
        raise


def say(line: str) -> None:
    print(line, file=ANSWERS, flush=True)


if __name__ == "__main__":
    ANSWERS = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what trainers print does not mix with the answers
    torch.set_num_threads(1)
    serve(importlib.import_module(f"trainers.{sys.argv[1]}").train)
