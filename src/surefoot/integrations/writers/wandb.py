"""wandb: a run of Weights & Biases. Needs the package wandb; set the server with WANDB_... variables."""

import os
from pathlib import Path

import wandb

from surefoot.plain_files import own_folder
from surefoot.records.run import Run


class Writer:
    """A run named after the run's directory, in the project WANDB_PROJECT (default `surefoot`)."""

    def start(self, run: Run) -> None:
        own_folder(Path(run.path) / "wandb")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "surefoot"),
            name=Path(run.path).name,
            dir=run.path,
            config={"recipe": run.recipe, "parameters": run.parameters, "device": run.device, **run.knobs},
        )

    def write(self, step: int, numbers: dict[str, float]) -> None:
        self._run.log(numbers, step=step)

    def end(self, *, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)
