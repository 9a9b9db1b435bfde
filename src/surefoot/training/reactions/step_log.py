"""What a step leaves in the log, in the events and in the record of its run."""

from __future__ import annotations

from collections.abc import Callable

import torch

from surefoot.errors import ReplayError
from surefoot.meters.steady_traffic import SteadyTraffic
from surefoot.records.log import LogRow
from surefoot.records.run import Run
from surefoot.step import Step
from surefoot.training.current_run import CurrentRun
from surefoot.training.guards.drift import Drift
from surefoot.training.opening import Opened
from surefoot.training.reactions.reaction import TakenStep
from surefoot.training.run_data import RunData
from surefoot.trees import local_part

Tell = Callable[[Run, LogRow], None]
"""A function that is called after every step, with the run so far and the log row of that step."""


class SkippedUpdate:
    """Reports a step that made no update."""

    def __init__(self, current: CurrentRun) -> None:
        self.current = current

    def after_step(self, taken: TakenStep) -> None:
        row = taken.row
        if not row.updated:
            text = f"the update was skipped: loss {row.loss}, gradient norm {row.grad_norm}"
            self.current.event("left-out", text)


class NextData:
    """Moves on to the data of the next step."""

    def __init__(self, data: RunData, current: CurrentRun) -> None:
        self.data, self.current = data, current

    def after_step(self, taken: TakenStep) -> None:
        self.data.step_taken(self.current.run)


class Repetition:
    """Raises if a step from before a crash differs in any bit when it is repeated."""

    def __init__(self, opened: Opened, current: CurrentRun) -> None:
        self.rows, self.current = dict(opened.standing.replayed), current

    def after_step(self, taken: TakenStep) -> None:
        row = taken.row
        first = self.rows.pop(row.step, None)
        differences = row.differs_from(first) if first else []
        if first and differences:
            run = self.current.run
            raise ReplayError(
                f"step {row.step} was repeated and gave a different result: {'; '.join(differences)}\n"
                f"{row.why_it_differs(first)}; the run began with torch {run.torch_version} and "
                f"{run.threads} threads, now {torch.__version__} and {torch.get_num_threads()}\n"
                "to resume anyway, start it with --accept-change"
            )

    def forget(self) -> None:
        """The steps that follow repeat none: the run has gone back on purpose."""
        self.rows = {}


class Log:
    """Appends the row to the log on disk."""

    def __init__(self, current: CurrentRun) -> None:
        self.current = current

    def after_step(self, taken: TakenStep) -> None:
        self.current.writer.append(taken.row)


class Totals:
    """Adds the step to the record of the run, with what stays in memory and what ranks sent each other."""

    def __init__(self, step: Step, traffic: SteadyTraffic, current: CurrentRun) -> None:
        self.step, self.traffic, self.current = step, traffic, current

    def after_step(self, taken: TakenStep) -> None:
        self.current.run = self.current.run.after([taken.row])
        held = self.current.run.memory_bytes or standing_bytes(self.step)
        self.current.change(memory_bytes=held, traffic=self.traffic.tally)


class SlowDecline:
    """Reports memory that creeps up, steps that slow down, and waiting for data."""

    def __init__(self, current: CurrentRun) -> None:
        self.drift, self.current = Drift(), current

    def after_step(self, taken: TakenStep) -> None:
        for kind, text in self.drift.see(taken.row):
            self.current.event(kind, text)


class Telling:
    """Calls the function that the caller of `train` gave."""

    def __init__(self, tell: Tell | None, current: CurrentRun) -> None:
        self.tell, self.current = tell, current

    def after_step(self, taken: TakenStep) -> None:
        if self.tell is not None:
            self.tell(self.current.run, taken.row)


def standing_bytes(step: Step) -> dict[str, int]:
    """The bytes that stay on this rank from step to step, by account. Gradients come and go within a step."""
    held = [value for state in step.optimizer.state.values() for value in state.values()]
    kept_in = {
        "parameters": step.model.parameters(),
        "gradients": step.parameters,
        "optimizer": (each for each in held if isinstance(each, torch.Tensor)),
        "buffers": step.model.buffers(),
        **({} if step.ema is None else {"averages": step.ema.tensors.values()}),
    }
    return {account: sum(local_part(each).nbytes for each in tensors) for account, tensors in kept_in.items()}
