"""mlflow: a run of MLflow. Needs the package mlflow; MLFLOW_TRACKING_URI says where to store it."""

import os
import time
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from surefoot.records.run import Run


class Writer:
    """A run named after the run's directory, in the experiment MLFLOW_EXPERIMENT_NAME (default `surefoot`)."""

    def start(self, run: Run) -> None:
        self._client = MlflowClient()
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", "surefoot")
        found = self._client.get_experiment_by_name(experiment)
        number = found.experiment_id if found else self._client.create_experiment(experiment)
        self._run = self._client.create_run(number, run_name=Path(run.path).name).info.run_id
        settings = {"recipe": run.recipe, "parameters": run.parameters, "device": run.device, **run.knobs}
        self._client.log_batch(self._run, params=[Param(name, str(value)) for name, value in settings.items()])

    def write(self, step: int, numbers: dict[str, float]) -> None:
        now = int(time.time() * 1000)
        self._client.log_batch(self._run, [Metric(name, value, now, step) for name, value in numbers.items()])

    def end(self, *, finished: bool) -> None:
        self._client.set_terminated(self._run, "FINISHED" if finished else "FAILED")
