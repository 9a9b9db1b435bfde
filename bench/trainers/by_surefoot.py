"""By surefoot: the same call begins a run and goes on with it.

A process that is to stop first is asked to with SIGTERM, at its `stop`; the others save every few steps and die.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Any

from surefoot import Recipe
from surefoot.checkpoint.state import restore
from surefoot.checkpoint.store import Checkpoints
from surefoot.records.log import LogRow
from surefoot.records.run import Run
from surefoot.step import Step
from surefoot.ways.train import train as surefoot_train
from surefoot.world.world import World
from trainers.job import Job
from trainers.listener import Listener, Trained


def train(recipe: Recipe, job: Job, listener: Listener) -> Trained:
    asked = job.start == 0

    def tell(run: Run, row: LogRow) -> None:
        listener.step_ended(row.step)
        if row.step == job.stop and asked:
            os.kill(os.getpid(), signal.SIGTERM)

    often = max(1, ((job.stop or job.steps) - job.start) // 3)
    run = surefoot_train(replace(recipe, save_every="10 h" if asked else often), path=job.folder, tell=tell)
    if run.status == "interrupted":
        os._exit(0)
    return last_state(recipe, run)


def last_state(recipe: Recipe, run: Run) -> Any:
    """What the run's last checkpoint holds."""
    with World() as world:
        step = Step(recipe, world)
        newest = Checkpoints(run.checkpoints).newest()
        assert newest is not None
        restore(step, newest)
        return Trained(step.model, step.optimizer)
