"""train: takes the steps, in one process, and keeps a run directory that can be killed at any moment."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_model
from torch.utils.data import Dataset

from surefoot.checkpoint.interval import Interval, Progress
from surefoot.checkpoint.lock import Lock
from surefoot.checkpoint.state import restore, state_of
from surefoot.checkpoint.store import Checkpoints
from surefoot.checks import CHECKS
from surefoot.data.batches import Batches, batches_of, micro_batches
from surefoot.errors import CheckpointError, NonFinite, RecipeError, ReplayError, RunError
from surefoot.guards.nonfinite import first_nonfinite
from surefoot.guards.signals import StopRequests
from surefoot.guards.spike import Spikes
from surefoot.guards.watchdog import Watchdog
from surefoot.randomness import derive, generators, kept, seed_all, set_generators
from surefoot.recipe import Recipe
from surefoot.records.codec import to_json
from surefoot.records.event import Event, append_event
from surefoot.records.files import write_whole
from surefoot.records.finding import Findings
from surefoot.records.log import MOST_SAMPLES, LogRow, append_row, digest_of, mend
from surefoot.records.run import Run, write_run
from surefoot.resume import folder_for, new_run, old_run
from surefoot.step import Step
from surefoot.techniques import clip
from surefoot.utilisation import peak_flops, step_flops
from surefoot.witness.glances import Glances
from surefoot.world import World

Tell = Callable[[Run, LogRow], None]


def train(
    recipe: Recipe,
    *,
    path: str | None = None,
    resume: Literal["auto", "never"] = "auto",
    accept_change: bool = False,
    tell: Tell | None = None,
) -> Run:
    """Trains to `max_steps` or `max_tokens` and returns the run. `tell` hears of every step.

    A directory that holds an unfinished run of the same recipe is gone on with. SIGTERM and SIGINT end the run
    after the step under way, saved, with the status `interrupted`.
    """
    if recipe.steps() is None:
        raise RecipeError(f"{recipe.name} does not say when to stop; set max_steps or max_tokens")
    if recipe.evaluate_every and recipe.evaluation is None:
        raise RecipeError(f"{recipe.name} has no evaluation data to look at every {recipe.evaluate_every} steps")
    every = None if recipe.save_every is None else Interval.read(recipe.save_every)
    folder = folder_for(recipe, path)
    with Lock(folder), StopRequests() as stop, kept():
        if not (folder / "run.json").exists():
            run = new_run(recipe, folder)
        elif resume == "never":
            raise RunError(f"{folder} holds a run already; name another directory, or let it resume")
        else:
            run = old_run(recipe, folder, accept_change=accept_change)
        return run if run.status == "finished" else _Training(recipe, run, every, stop, tell).whole()


class _Training:
    """One process that takes the steps of a run, from its last checkpoint or from the start."""

    def __init__(self, recipe: Recipe, run: Run, every: Interval | None, stop: StopRequests, tell: Tell | None) -> None:
        self.recipe, self.run, self.every, self.stop, self.tell = recipe, run, every, stop, tell
        self.world = World()
        self.checkpoints = Checkpoints(run.checkpoints, keep_last=recipe.keep_last)
        self.batches = Batches(iter(()))
        self.data_seconds = 0.0

    def whole(self) -> Run:
        """From where the run stands to its end, or to a request to stop."""
        try:
            with ExitStack() as open_things:
                open_things.enter_context(self.world)
                self.step = Step(self.recipe, self.world)
                self.glances = Glances(self.step.model, self.step.optimizer, on=not self.step.compiled)
                self._begin()
                mend(self.run.log)
                self.log = open_things.enter_context(self.run.log.open("a", encoding="utf-8"))
                open_things.callback(lambda: self.batches.close())
                stacks = Path(self.run.path) / "stacks.txt"
                alarm = Watchdog(stacks, lambda text: self._tell_of("slow-step", f"{text}; see {stacks}"))
                self.watchdog = open_things.enter_context(alarm)
                self._take_steps()
                self._end()
        except BaseException as error:
            self._settle()
            self._give_up(error)
            raise
        finally:
            self.checkpoints.close()
        return self.run

    def _begin(self) -> None:
        """The state of the newest checkpoint that can be trusted, or of step 0."""
        checkpoint = self.checkpoints.newest()
        for path, reason in self.checkpoints.rejected:
            self._tell_of("checkpoint-rejected", f"{path.name}: {reason}")
        if checkpoint is not None:
            set_generators(restore(self.step, checkpoint)["generators"])
        self._open_data()
        if self.run.data_identity not in ("", self.batches.identity):
            raise RunError(
                f"the data is not what the run began with: it was {self.run.data_identity}, "
                f"and is {self.batches.identity}"
            )
        rows = self.run.rows()
        taken = [row for row in rows if row.step <= self.step.number]
        self.replayed = {
            row.step: row for row in rows if row.step > self.step.number and row.attempt == self.run.attempt
        }
        self.spikes = Spikes(row.loss for row in taken)
        self.run = replace(
            self.run.before_its_steps().after(taken),
            parameters=self.step.parameter_count,
            device=str(self.step.device),
            data_identity=self.batches.identity,
            choices=self.step.choices(),
            **self._utilisation(),
        )
        self.saved = self._progress()
        write_run(self.run)
        if self.run.starts > 1:
            place = checkpoint.path.name if checkpoint else "step 0"
            self._tell_of("resumed", f"start {self.run.starts}, from {place}")

    def _utilisation(self) -> dict[str, float | None]:
        peak = peak_flops(self.step.device, self.recipe.precision)
        return {"peak_flops": peak, "step_flops": None if peak is None else step_flops(self.recipe)}

    def _open_data(self) -> None:
        """Micro-batches from the step that comes next; those of a step that spiked are passed over."""
        self.batches.close()
        self.batch = self.run.batch_of(self.step.number)
        self.batches = batches_of(self.recipe, first_step=self.batch, ahead=True)

    def _take_steps(self) -> None:
        while self.step.number < (self.recipe.steps() or 0) and self.stop.received is None:
            row = self._take_one()
            self._agree(row)
            append_row(self.log, row)
            if self.spikes.see(row.loss):
                self._tell_of("spike", f"the loss jumped to {row.loss:.4g}")
                if self.recipe.rewind and self._rewind(row.step):
                    continue
            self.run = self.run.after([row])
            if not self.run.memory_bytes:
                self.run = replace(self.run, memory_bytes=_standing_bytes(self.step))
            self._report()
            self.watchdog.beat()
            if self.every is not None and self.every.due(self.saved, self._progress()):
                self._save()
            if self.tell is not None:
                self.tell(self.run, row)

    def _report(self) -> None:
        """What glances found for the first time is told once, and kept with the run."""
        new = self.glances.new_findings()
        if new:
            found = Findings(self.recipe.name, tuple(CHECKS), tuple(self.glances.found.values()))
            write_whole(self.run.findings, to_json(found) + "\n")
        for finding in new:
            self._tell_of("finding", f"{finding.check}: {finding.seen}; {finding.remedy}")

    def _take_one(self) -> LogRow:
        began, lr = time.perf_counter(), self.step.optimizer.param_groups[0]["lr"]
        self.data_seconds = 0.0
        self.batches.taken.clear()
        try:
            with self.glances.at(self.step.number + 1):
                outcome = self.step(self._loaded())
        except NonFinite as error:
            append_row(self.log, self._row(error.step, error.loss, error.grad_norm, False, lr, began))
            raise self._explained(error) from None
        loss, norm = outcome.loss.item(), outcome.grad_norm.item()
        row = self._row(self.step.number, loss, norm, outcome.updated, lr, began)
        if not row.updated:
            self._tell_of("left-out", f"no update was made: loss {row.loss}, gradient norm {row.grad_norm}")
        self.batch += 1
        if self.batch in self.run.passed_over:
            self._open_data()
        every = self.recipe.evaluate_every
        if every and (row.step % every == 0 or row.step == self.recipe.steps()):
            row = replace(row, evaluation_loss=self._evaluate())
        return row

    def _loaded(self) -> Iterator[Any]:
        for _ in range(self.recipe.micro_batches()):
            began = time.perf_counter()
            batch = self.world.take(self.batches)
            self.data_seconds += time.perf_counter() - began
            yield batch

    def _row(self, step: int, loss: float, norm: float, updated: bool, lr: float, began: float) -> LogRow:
        samples = tuple(self.batches.taken)
        return LogRow(
            step=step,
            loss=loss,
            grad_norm=norm,
            clipped_norm=clip.norm_after(norm, self.recipe.max_grad_norm),
            lr=lr,
            tokens=self.recipe.tokens_per_step,
            samples=samples if len(samples) <= MOST_SAMPLES else None,
            samples_digest=digest_of(samples),
            updated=updated,
            seconds=time.perf_counter() - began,
            data_seconds=self.data_seconds,
            attempt=self.run.attempt,
        )

    def _evaluate(self) -> float:
        """The loss on the same held-out micro-batches each time. Training does not notice."""
        recipe = self.recipe
        batches = micro_batches(self.held_out, size=recipe.micro_batch_size, seed=recipe.seed, collate=recipe.collate)
        with kept():
            seed_all(derive(recipe.seed, "evaluate"))
            taken = (self.world.take(batches) for _ in range(recipe.evaluation_batches))
            return self.step.evaluate(taken).item()

    @cached_property
    def held_out(self) -> Dataset[Any]:
        assert self.recipe.evaluation is not None
        return self.recipe.evaluation()

    def _agree(self, row: LogRow) -> None:
        """A step that was taken before a crash and is taken again must come out the same, bit for bit."""
        first = self.replayed.pop(row.step, None)
        differences = row.differs_from(first) if first else []
        if differences:
            raise ReplayError(
                f"step {row.step} was taken before and came out differently: {'; '.join(differences)}\n"
                f"the run began with torch {self.run.torch_version} and {self.run.threads} threads, now "
                f"{torch.__version__} and {torch.get_num_threads()}; another machine, nondeterministic code or a "
                "faulty device can do this too; to go on regardless, start it with --accept-change"
            )

    def _explained(self, error: NonFinite) -> NonFinite:
        """The error with its cause: the step is taken again without its update, to name the module and the samples."""
        self.step.optimizer.zero_grad(set_to_none=True)
        finding = first_nonfinite(self.step, self._numbered(batches_of(self.recipe, first_step=self.batch)))
        if finding is None:
            return error
        found = Findings(recipe=self.recipe.name, checks=(finding.check,), findings=(finding,))
        write_whole(self.run.findings, to_json(found) + "\n")
        cause = f"{finding.seen}\n{finding.where}\n{finding.remedy}"
        return NonFinite(error.step, error.loss, error.grad_norm, cause)

    def _numbered(self, batches: Batches) -> Iterator[tuple[list[int], Any]]:
        for _ in range(self.recipe.micro_batches()):
            batches.taken.clear()
            batch = self.world.take(batches)
            yield list(batches.taken), batch

    def _rewind(self, step: int) -> bool:
        """Back to the last checkpoint before a step, and past the samples of that step."""
        self._settle()
        checkpoint = self.checkpoints.newest()
        if checkpoint is None:
            return False
        restore(self.step, checkpoint)
        rows = [row for row in self.run.rows() if row.step <= self.step.number]
        passed_over = (*self.run.passed_over, self.batch - 1)
        run = self.run.before_its_steps().after(rows)
        self.run = replace(run, attempt=self.run.attempt + 1, passed_over=passed_over)
        write_run(self.run)
        self.replayed, self.spikes = {}, Spikes(row.loss for row in rows)
        self._open_data()
        self._tell_of("rewound", f"to step {self.step.number}; the samples of step {step} are passed over")
        return True

    def _save(self) -> None:
        """A checkpoint of this step. If it cannot be written, the run goes on and the older ones stay."""
        self.log.flush()
        os.fsync(self.log.fileno())
        self.saved = self._progress()
        try:
            self.checkpoints.save(self.step.number, {**state_of(self.step), "generators": generators()})
        except CheckpointError as error:
            self._tell_of("save-failed", str(error))
        self.run = replace(self.run, failures=0)
        write_run(self.run)

    def _give_up(self, error: BaseException) -> None:
        failed = not isinstance(error, KeyboardInterrupt)
        self.run = replace(
            self.run,
            status="failed" if failed else "interrupted",
            reason=f"{type(error).__name__}: {error}".strip(": "),
            failures=self.run.failures + failed,
        )
        write_run(self.run)

    def _settle(self) -> None:
        """Waits for a checkpoint that is still being written."""
        try:
            self.checkpoints.wait()
        except CheckpointError as error:
            self._tell_of("save-failed", str(error))

    def _end(self) -> None:
        asked = self.stop.received is not None
        if (asked or self.every is not None) and self.saved.steps != self.step.number:
            self._save()
        self._settle()
        done = self.step.number >= (self.recipe.steps() or 0)
        if done:
            draft = self.run.weights.with_suffix(".part")
            save_model(self.step.model, str(draft))
            os.replace(draft, self.run.weights)
        reason = "" if done else f"stopped by {self.stop.received} after step {self.step.number}"
        self.run = replace(self.run, status="finished" if done else "interrupted", reason=reason)
        write_run(self.run)

    def _progress(self) -> Progress:
        return Progress(self.step.number, self.run.tokens, self.run.seconds)

    def _tell_of(self, kind: str, text: str) -> None:
        step = self.step.number if hasattr(self, "step") else 0
        append_event(self.run.events, Event(step, kind, text, f"{datetime.now():%Y-%m-%d %H:%M:%S}"))


def _standing_bytes(step: Step) -> dict[str, int]:
    """What stays in memory from step to step, by account; gradients come and go within a step."""
    held = [value for state in step.optimizer.state.values() for value in state.values()]
    return {
        "parameters": sum(each.nbytes for each in step.model.parameters()),
        "gradients": sum(each.nbytes for each in step.parameters),
        "optimizer": sum(each.nbytes for each in held if isinstance(each, torch.Tensor)),
        "buffers": sum(each.nbytes for each in step.model.buffers()),
    }
