"""The training loop: takes the steps of a run on one rank, logs and checks each, saves checkpoints, and resumes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from surefoot.checkpoint.interval import Interval, Progress
from surefoot.checkpoint.mirror import Mirror
from surefoot.checkpoint.state import restore, state_of
from surefoot.checkpoint.store import Checkpoints
from surefoot.checks.registry import CHECKS
from surefoot.checks.run_throttle import RunThrottle
from surefoot.errors import CheckpointError, DiskError, NonFinite, ReplayError
from surefoot.meters.process_memory import held_bytes
from surefoot.meters.steady_traffic import SteadyTraffic
from surefoot.randomness import derive, generators, kept, seed_all
from surefoot.recipe.recipe import Recipe
from surefoot.records.layers import Layer, LayersRow
from surefoot.records.log import LogRow
from surefoot.records.run import Run
from surefoot.step import Step
from surefoot.techniques import clip
from surefoot.techniques.accumulate import local_part
from surefoot.techniques.layers import Layers
from surefoot.training.auto_workers import AutoWorkers, most_workers, why_none
from surefoot.training.callbacks import Callbacks
from surefoot.training.end import ended, failed, with_weights
from surefoot.training.exchange import Told, tell_all
from surefoot.training.guards.drift import Drift
from surefoot.training.guards.nonfinite import first_nonfinite
from surefoot.training.guards.signals import StopRequests
from surefoot.training.guards.spike import Spikes
from surefoot.training.init_from import Taken, with_first_weights
from surefoot.training.monitor import Monitor
from surefoot.training.out_of_memory import note_out_of_memory
from surefoot.training.plain_state import PlainState
from surefoot.training.run_data import RunData
from surefoot.training.run_findings import RunFindings
from surefoot.training.run_writer import RunWriter
from surefoot.training.scoring import floats_of, scores_of
from surefoot.training.selection import Selection
from surefoot.training.start import refuse_unsavable_schedule, restored
from surefoot.world.world import RealWorld

if TYPE_CHECKING:
    from surefoot.explain.limited_memory import LimitedMemory

Tell = Callable[[Run, LogRow], None]
"""A function that is called after every step, with the run so far and the log row of that step."""


class Training:
    """One rank of a run, from its last checkpoint or from step 0 to the end.

    All ranks execute the same code and make the same decisions. Facts that only one rank knows (its signals, its
    clock, its samples) are gathered after every step. The scribe writes the files.
    """

    def __init__(
        self,
        recipe: Recipe,
        run: Run,
        world: RealWorld,
        *,
        every: Interval | None,
        stop: StopRequests,
        tell: Tell | None,
        accepted: bool,
        mirror: Mirror,
        memory: LimitedMemory | None = None,
    ) -> None:
        self.accepted, self.memory = accepted, memory
        self.recipe, self.run, self.world, self.every, self.stop, self.tell = recipe, run, world, every, stop, tell
        self.scribe, self.mirror = RunWriter(run, rank=world.rank), mirror
        self.checkpoints = Checkpoints(run.checkpoints, keep_last=recipe.keep_last, mirror=mirror)
        self.stopped = ""

    def whole(self) -> Run:
        """Trains to the end of the run, or until a signal asks it to stop."""
        try:
            with ExitStack() as open_things:
                if self.memory is not None:
                    open_things.enter_context(self.memory)
                self._build()
                self._begin()
                open_things.enter_context(self.scribe.log_of(self.run))
                open_things.callback(self.data.close)
                self.lookout = open_things.enter_context(Monitor(self.step, self.scribe, self.run))
                self._keep_first_weights()
                self._take_steps()
                self._end()
        except BaseException as error:
            self._settle()
            self.run = failed(self.run, error)
            self.scribe.note(self.run)
            note_out_of_memory(error, self.run, self.scribe, self.memory, getattr(self, "step", None))
            if not isinstance(error, KeyboardInterrupt):
                self.mirror.end(self.run)
            raise
        finally:
            self.checkpoints.close()
        self.mirror.end(self.run)
        return self.run

    def _build(self) -> None:
        """Builds the step, its data and its watchers. With many ranks or compiled code, fewer watchers are on."""
        self.taken_from = list[Taken]()
        resumes = next(iter(self.checkpoints), None) is not None
        self.step = Step(self.recipe if resumes else with_first_weights(self.recipe, self.taken_from), self.world)
        refuse_unsavable_schedule(self.step)
        self.data = RunData(self.step)
        glances = RunThrottle(
            self.step.model,
            self.step.optimizer,
            on=not (self.step.compiled or self.step.layout.shards or self.step.is_own),
        )
        many = self.world.ranks > 1 and not self.step.compiled
        self.traffic = SteadyTraffic(self.step.model, self.step.mesh, on=many)
        self.callbacks = Callbacks(self.step, self._tell_of)
        alone = self.world.ranks == 1 and not self.step.compiled
        self.findings = RunFindings(self.step, glances, PlainState(self.step.model) if alone else None)
        if self.memory is not None:
            glances.failsafe.aside = self.memory.aside
            self.memory.know(self.step.model, None if self.step.ema is None else self.step.ema.tensors)
        self.layers = self.step.measure_layers()

    def _begin(self) -> None:
        """Resumes from the newest checkpoint that can be trusted, or starts at step 0."""
        standing = restored(
            self.run, self.step, self.data, self.checkpoints, accepted=self.accepted, tell_of=self._tell_of
        )
        self.run, self.replayed = standing.run, standing.replayed
        self._select(standing.taken)
        self.spikes, self.drift = Spikes(row.loss for row in standing.taken if row.loss is not None), Drift()
        self.saved = self._progress()
        self.workers = AutoWorkers(most=most_workers()) if self.recipe.workers == "auto" else None
        if self.workers is not None and (reason := why_none(self.data.batches.dataset)):
            self._settle_workers(reason)
        self.findings.begin()
        self.scribe.write(self.run)
        if self.run.starts > 1:
            self._tell_of("resumed", f"start {self.run.starts}, from {standing.place}")

    def _keep_first_weights(self) -> None:
        """Saves a model that was filled from `init_from`, so that a resume does not read that again."""
        for taken in self.taken_from[:1]:
            self._tell_of("initialised", str(taken))
            self._save()
            self._settle()

    def _take_steps(self) -> None:
        while not self._done() and not self._asked_to_stop():
            row = self._take_one()
            self._agree(row)
            self.scribe.append(row)
            if row.loss is not None and self.spikes.see(row.loss):
                self._tell_of("spike", f"the loss jumped to {row.loss:.4g}")
                if self.recipe.rewind and self._rewind(row.step):
                    continue
            self.run = self.run.after([row])
            for kind, text in self.drift.see(row):
                self._tell_of(kind, text)
            held = self.run.memory_bytes or _standing_bytes(self.step)
            self.run = replace(self.run, memory_bytes=held, traffic=self.traffic.tally)
            self._report()
            self.lookout.step_ended(row.seconds)
            better = self.selection.see(row)
            if better:
                self._note_best()
            self.callbacks.see(self.run, row)
            if better or (self.every is not None and self.every.due(self.saved, self._progress())):
                self._save()
            self._choose_workers(row)
            if self.tell is not None:
                self.tell(self.run, row)

    def _choose_workers(self, row: LogRow) -> None:
        """Follows the steps until a number of loader processes is chosen. All ranks see the same seconds."""
        if self.workers is None:
            return
        chosen = self.workers.see(row.seconds, row.data_seconds)
        if chosen is not None:
            self.data.load_with(chosen, self.run)
        if self.workers.said:
            self._settle_workers(self.workers.said)

    def _settle_workers(self, said: str) -> None:
        self.workers = None
        self.run = replace(self.run, choices=(*self.run.choices, said))
        self._tell_of("workers", said)

    def _report(self) -> None:
        """Reports each new finding once, and keeps all of them with the run."""
        with self._aside():
            new = self.findings.new(self.run.data_identity)
        if new:
            self.scribe.find(self.run, *self.findings.found, checks=tuple(CHECKS))
        for finding in new:
            self._tell_of("finding", f"{finding.check}: {finding.seen}; {finding.remedy}")

    def _aside(self) -> AbstractContextManager[None]:
        """Around what surefoot allocates for itself, such as the copies of a checkpoint: no memory limit holds it."""
        return nullcontext() if self.memory is None else self.memory.aside()

    def _take_one(self) -> LogRow:
        began, lr = time.perf_counter(), self.step.optimizer.param_groups[0]["lr"]
        if self.memory is not None:
            self.memory.step_begins()
        self.data.begin_step()
        every, seen = self.recipe.metrics_every, list[Any]()
        batches: Iterable[Any] = self.findings.noting(self.data.of_step())
        if every and (self.step.number + 1) % every == 0:
            batches = _keeping(batches, seen)
        measured = self.layers if (self.step.number + 1) % (self.recipe.layers_every or 1) == 0 else None
        try:
            with self.findings.around_step(), self.traffic.around_step(), measured or nullcontext():
                outcome = self.step(batches)
        except NonFinite as error:
            self.scribe.append(self._row(error.step, error.loss, error.grad_norm, False, lr, began))
            raise self._explained(error) from None
        loss, norm = outcome.loss.item(), None if outcome.grad_norm is None else outcome.grad_norm.item()
        if measured is not None:
            self._note_layers(measured, norm)
        row = self._row(self.step.number, loss, norm, outcome.updated, lr, began)
        if not row.updated:
            self._tell_of("left-out", f"the update was skipped: loss {row.loss}, gradient norm {row.grad_norm}")
        self.data.step_taken(self.run)
        if outcome.parts.keys() - {"loss"}:
            row = replace(row, train_metrics=floats_of(outcome.parts))
        if seen:
            row = replace(row, train_metrics={**row.train_metrics, **self._measure(seen)})
        every = self.recipe.evaluate_every
        if every and (row.step % every == 0 or row.step == self.recipe.steps()):
            scores = self._evaluate()
            if "loss" in scores:
                self.step.held_out(scores["loss"])
            row = replace(row, evaluation_loss=scores.pop("loss", None), metrics=scores)
        return row

    def _note_layers(self, layers: Layers, norm: float | None) -> None:
        """Records what each layer did in this step. The optimizer saw clipped gradients; the record has them whole."""
        clipped = None if norm is None else clip.norm_after(norm, self.recipe.max_grad_norm)
        figures = layers.figures(gradient_scale=norm / clipped if norm and clipped else 1.0)
        found = {name: Layer(**each) for name, each in figures.items()}
        self.scribe.append_layers(self.run, LayersRow(self.step.number, self.run.attempt, found))

    def _row(self, step: int, loss: float, norm: float | None, updated: bool, lr: float, began: float) -> LogRow:
        told = self._told(time.perf_counter() - began)
        return LogRow(
            step=step,
            loss=loss,
            grad_norm=norm,
            clipped_norm=None if norm is None else clip.norm_after(norm, self.recipe.max_grad_norm),
            lr=lr,
            tokens=self.recipe.tokens_per_step,
            samples=told.samples,
            samples_digest=f"{told.digest:016x}",
            batch_digest=f"{told.batch_digest:016x}",
            updated=updated,
            seconds=told.seconds,
            data_seconds=told.data_seconds,
            attempt=self.run.attempt,
            memory_bytes=held_bytes(self.step.device),
        )

    def _told(self, seconds: float) -> Told:
        """Gathers the facts of this step from all ranks: which ones received a signal, and which one lags."""
        told = tell_all(
            self.world,
            self.step,
            seconds=seconds,
            data_seconds=self.data.seconds,
            own_seconds=self.lookout.own_seconds(seconds),
            taken=self.data.batches.taken,
            hashes=self.data.batches.hashes,
            asked=self.stop.received is not None,
        )
        if told.asked_to_stop:
            self.stopped = self.stop.received or f"a signal to rank {told.asked_to_stop[0]}"
        late = self.lookout.late(told)
        if late:
            self._tell_of("straggler", late)
        return told

    def _asked_to_stop(self) -> bool:
        """On many ranks, a request counts only when all ranks know it, so that all stop after the same step."""
        if self.world.ranks == 1 and self.stop.received is not None:
            self.stopped = self.stop.received
        return bool(self.stopped)

    def _evaluate(self, test: str | None = None) -> dict[str, float]:
        """Loss and metrics on the same held-out micro-batches each time, or on test data."""
        return scores_of(self.step, self.data, test)

    def _measure(self, batches: list[Any]) -> dict[str, float]:
        """The metrics on the batch of a step. They leave the random state of training as it was."""
        with kept():
            seed_all(derive(self.recipe.seed, "measure"))
            return floats_of(self.step.measure(batches))

    def _done(self) -> bool:
        """Whether the run took its last step, or waited in vain for a better evaluation."""
        return self.step.number >= (self.recipe.steps() or 0) or self.selection.gives_up

    def _select(self, rows: list[LogRow]) -> None:
        """Chooses the best step from the rows so far. Its checkpoint stays."""
        self.selection = Selection(self.recipe, rows)
        if self.selection.step:
            self._note_best()

    def _note_best(self) -> None:
        self.checkpoints.keep.add(self.selection.step)
        self.run = replace(self.run, best_step=self.selection.step, best_value=self.selection.value)
        self.scribe.note(self.run)  # a mirror copies this file with the checkpoint and reads there which one is best

    def _agree(self, row: LogRow) -> None:
        """Raises if a step from before a crash differs in any bit when it is repeated."""
        first = self.replayed.pop(row.step, None)
        differences = row.differs_from(first) if first else []
        if first and differences:
            raise ReplayError(
                f"step {row.step} was repeated and gave a different result: {'; '.join(differences)}\n"
                f"{row.why_it_differs(first)}; the run began with torch {self.run.torch_version} and "
                f"{self.run.threads} threads, now {torch.__version__} and {torch.get_num_threads()}\n"
                "to resume anyway, start it with --accept-change"
            )

    def _explained(self, error: NonFinite) -> NonFinite:
        """The error with its cause: repeats the step without its update, to name the module and the samples."""
        self.step.optimizer.zero_grad(set_to_none=True)
        again = self.data.again()
        if self.step.is_own or again is None:
            return error
        finding = first_nonfinite(self.step, again)
        if finding is None:
            return error
        self.scribe.find(self.run, finding)
        cause = f"{finding.seen}\n{finding.where}\n{finding.remedy}"
        return NonFinite(error.step, error.loss, error.grad_norm, cause)

    def _rewind(self, step: int) -> bool:
        """Goes back to the last checkpoint before a step, and skips the samples of that step from then on."""
        self._settle()
        checkpoint = self.checkpoints.newest()
        if checkpoint is None:
            return False
        restore(self.step, checkpoint)
        rows = [row for row in self.world.from_first(self.run.rows) if row.step <= self.step.number]
        passed_over = (*self.run.passed_over, self.data.batch - 1)
        run = self.run.before_its_steps().after(rows)
        self.run = replace(run, attempt=self.run.attempt + 1, passed_over=passed_over)
        self.scribe.write(self.run)
        self._select(rows)
        self.replayed, self.spikes = {}, Spikes(row.loss for row in rows if row.loss is not None)
        self.data.open(self.run)
        self._tell_of("rewound", f"to step {self.step.number}; the samples of step {step} are skipped")
        return True

    def _save(self) -> None:
        """Saves a checkpoint of this step. If it cannot be written, the run continues and the older ones stay."""
        self.lookout.compare_replicas()
        self.saved, began = self._progress(), time.perf_counter()
        try:
            self.world.from_first(self.scribe.sync)  # no checkpoint may be newer than the log on disk
            with self._aside():
                self.checkpoints.save(
                    self.step.number, {**state_of(self.step), "generators": generators(), **self.data.state}
                )
        except (CheckpointError, DiskError) as error:
            self._tell_of("save-failed", str(error))
        stood_still = self.run.save_seconds + time.perf_counter() - began
        self.run = replace(self.run, saves=self.run.saves + 1, save_seconds=stood_still)
        self._note_saved()
        self.scribe.note(self.run)

    def _note_saved(self) -> None:
        """Notes a checkpoint that has reached the disk: the run made progress, so earlier failures no longer count."""
        if self.checkpoints.published > self.run.saved_step:
            self.run = replace(self.run, failures=0, saved_step=self.checkpoints.published)
            if self.checkpoints.published >= self.selection.step > 0:
                self.checkpoints.keep = {self.selection.step}  # only now may the one that was best before go

    def _settle(self) -> None:
        """Waits for a checkpoint that is still being written."""
        try:
            self.checkpoints.wait()
        except CheckpointError as error:
            self._tell_of("save-failed", str(error))
        self._note_saved()

    def _end(self) -> None:
        if (self.stopped or self.every is not None) and self.saved.steps != self.step.number:
            self._save()
        self._settle()
        self.world.from_first(self.scribe.sync)
        if done := self._done():
            if self.step.number < (self.recipe.steps() or 0):
                self._tell_of(
                    "stopped-early", f"{self.selection.since} evaluations were no better than {self.selection}"
                )
            with self._aside():
                self.run = with_weights(self.run, self.step, self.scribe, self.checkpoints, best=self.selection.step)
            self.run = replace(self.run, tests={name: self._evaluate(name) for name in self.recipe.tests()})
        self.run = ended(self.run, self.step, self.data, self.scribe, stopped=self.stopped, done=done)
        self.scribe.write(self.run)

    def _progress(self) -> Progress:
        return Progress(self.step.number, self.run.tokens, self.run.seconds)

    def _tell_of(self, kind: str, text: str) -> None:
        step = self.step.number if hasattr(self, "step") else 0
        self.scribe.tell_of(self.run, step, kind, text)


def _keeping(batches: Iterable[Any], seen: list[Any]) -> Iterator[Any]:
    """The batches, each added to `seen` as it passes."""
    for batch in batches:
        seen.append(batch)
        yield batch


def _standing_bytes(step: Step) -> dict[str, int]:
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
