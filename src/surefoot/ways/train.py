"""train: takes the steps, on one rank or many, and keeps a run directory that can be killed at any moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch.utils.data import Dataset

from surefoot.build import build_evaluation
from surefoot.checkpoint.interval import Interval, Progress
from surefoot.checkpoint.lock import Lock
from surefoot.checkpoint.mirror import Mirror
from surefoot.checkpoint.state import restore, state_of
from surefoot.checkpoint.store import Checkpoints
from surefoot.checks.facts import Facts
from surefoot.checks.facts.saved_state import SavedStateFacts
from surefoot.checks.registry import CHECKS, judged
from surefoot.checks.run_throttle import FIRST, Glances
from surefoot.checks.saved_state.rules import state_lost_on_reload
from surefoot.data.batches import Batches, batches_of, micro_batches
from surefoot.data.identity import identity_of
from surefoot.data.token_ledger import ledger_of_run
from surefoot.errors import CheckpointError, DiskError, NonFinite, RecipeError, ReplayError, RunError
from surefoot.meters.process_memory import held_bytes
from surefoot.meters.steady_traffic import SteadyTraffic
from surefoot.planning.mfu import peak_flops, step_flops
from surefoot.randomness import derive, generators, kept, seed_all, set_generators
from surefoot.recipe.recipe import Recipe
from surefoot.records.data_identity import DataIdentity
from surefoot.records.finding import Finding
from surefoot.records.log import LogRow
from surefoot.records.plan import Plan
from surefoot.records.run import Run, Status
from surefoot.records.tally import Tally
from surefoot.records.token_ledger import TokenLedger
from surefoot.step import Step
from surefoot.techniques import clip
from surefoot.techniques.accumulate import local_part
from surefoot.techniques.mesh import layout_of, with_global_batch
from surefoot.training.exchange import Told, tell_all
from surefoot.training.guards.drift import Drift
from surefoot.training.guards.nonfinite import first_nonfinite
from surefoot.training.guards.signals import StopRequests
from surefoot.training.guards.spike import Spikes
from surefoot.training.monitor import Lookout
from surefoot.training.plain_state import PlainState, loss_of
from surefoot.training.resume import (
    changes_since,
    folder_for,
    new_run,
    old_run,
    refuse_lost_checkpoints,
    refuse_lost_rows,
    refuse_other_data,
)
from surefoot.training.run_writer import Scribe
from surefoot.training.weights import damage_of, to_repair
from surefoot.world.world import RealWorld

Tell = Callable[[Run, LogRow], None]


def train(
    recipe: Recipe,
    *,
    path: str | None = None,
    resume: Literal["auto", "never"] = "auto",
    accept_change: bool = False,
    plan: Plan | None = None,
    tell: Tell | None = None,
) -> Run:
    """Trains to `max_steps` or `max_tokens` and returns the run. `tell` hears of every step.

    A `plan` is kept beside the run, so that its ledger has two sides.

    A directory that holds an unfinished run of the same recipe is gone on with, on any number of ranks. SIGTERM and
    SIGINT, to any rank, end the run after the step under way, saved, with the status `interrupted`.
    """
    if recipe.steps() is None:
        raise RecipeError(f"{recipe.name} does not say when to stop; set max_steps or max_tokens")
    if recipe.evaluate_every and recipe.evaluation is None:
        raise RecipeError(f"{recipe.name} has no evaluation data to look at every {recipe.evaluate_every} steps")
    every = None if recipe.save_every is None else Interval.read(recipe.save_every)
    world = RealWorld()
    layout = layout_of(recipe, rank=world.rank, ranks=world.ranks)
    recipe = with_global_batch(recipe, layout)
    recipe.micro_batches(layout.data_ranks)
    mirror = Mirror(recipe.mirror, keep_last=recipe.keep_last, on=world.rank == 0)

    def there(folder: Path) -> Run:
        return old_run(recipe, folder, accept_change=accept_change, layout=str(layout))

    def differences(run: Run) -> list[str]:
        return [] if accept_change else list(changes_since(run, recipe))

    def opened() -> Run:
        folder = folder_for(recipe, path)
        held.enter_context(Lock(folder))
        mirror.open(folder)
        mirror.restore(differences, there, allowed=resume == "auto")
        if not (folder / "run.json").exists():
            return mirror.claim(new_run(recipe, folder, layout=str(layout)), differences)
        if resume == "never":
            raise RunError(f"{folder} holds a run already; name another directory, or let it resume")
        return mirror.claim(there(folder), differences)

    with ExitStack() as held, world, StopRequests() as stop, kept(), mirror:
        run = world.from_first(opened)
        if (damaged := world.from_first(lambda: damage_of(run))) is not None:
            run = to_repair(run, damaged)
            Scribe(run, rank=world.rank).tell_of(run, run.steps, "weights-damaged", f"{damaged}; they are made anew")
        if plan is not None:
            Scribe(run, rank=world.rank).keep_plan(run, plan)
        if run.status == "finished":
            mirror.end(run)
            return run
        return _Training(recipe, run, world, every, stop, tell, accept_change, mirror).whole()


class _Training:
    """One rank of those that take the steps of a run, from its last checkpoint or from the start.

    All ranks do the same, and settle alike whatever they settle: what one alone knows, its signals, its clock and its
    samples, is gathered after every step. Files are the scribe's matter.
    """

    def __init__(
        self,
        recipe: Recipe,
        run: Run,
        world: RealWorld,
        every: Interval | None,
        stop: StopRequests,
        tell: Tell | None,
        accepted: bool,
        mirror: Mirror,
    ) -> None:
        self.accepted = accepted
        self.recipe, self.run, self.world, self.every, self.stop, self.tell = recipe, run, world, every, stop, tell
        self.scribe, self.mirror = Scribe(run, rank=world.rank), mirror
        self.checkpoints = Checkpoints(run.checkpoints, keep_last=recipe.keep_last, mirror=mirror)
        self.batches = Batches(iter(()))
        self.stopped = ""
        self.found: list[Finding] = []
        self.last_batch: Any = None
        self.data_seconds = 0.0

    def whole(self) -> Run:
        """From where the run stands to its end, or to a request to stop."""
        try:
            with ExitStack() as open_things:
                self.step = Step(self.recipe, self.world)
                self.glances = Glances(
                    self.step.model, self.step.optimizer, on=not (self.step.compiled or self.step.layout.shards)
                )
                many = self.world.ranks > 1 and not self.step.compiled
                self.traffic = SteadyTraffic(self.step.model, self.step.mesh, on=many)
                alone = self.world.ranks == 1 and not self.step.compiled
                self.plain = PlainState(self.step.model) if alone else None
                self._begin()
                open_things.enter_context(self.scribe.log_of(self.run))
                open_things.callback(lambda: self.batches.close())
                self.lookout = open_things.enter_context(Lookout(self.step, self.scribe, self.run))
                self._take_steps()
                self._end()
        except BaseException as error:
            self._settle()
            self._give_up(error)
            if not isinstance(error, KeyboardInterrupt):
                self.mirror.end(self.run)
            raise
        finally:
            self.checkpoints.close()
        self.mirror.end(self.run)
        return self.run

    def _begin(self) -> None:
        """The state of the newest checkpoint that can be trusted, or of step 0."""
        checkpoint = self.checkpoints.newest()
        for path, reason in self.checkpoints.rejected:
            self._tell_of("checkpoint-rejected", f"{path.name}: {reason}")
        rows, saved_step = self.world.from_first(self.run.rows), 0 if checkpoint is None else checkpoint.step
        if not self.accepted:
            refuse_lost_checkpoints(self.run, left=saved_step)
            self.world.from_first(partial(refuse_lost_rows, self.run, upto=saved_step))
        if checkpoint is not None:
            set_generators(restore(self.step, checkpoint)["generators"])
        self._open_data()
        data, evaluation = self.world.from_first(self._identities)
        refuse_other_data(self.run.data_identity, data, "data")
        if evaluation is not None:
            refuse_other_data(self.run.evaluation_identity, evaluation, "evaluation data")
        taken = [row for row in rows if row.step <= self.step.number]
        self.replayed = {
            row.step: row for row in rows if row.step > self.step.number and row.attempt == self.run.attempt
        }
        self.spikes, self.drift = Spikes(row.loss for row in taken if row.loss is not None), Drift()
        peak = self._peak_flops()
        self.run = replace(
            self.run.before_its_steps().after(taken),
            parameters=self.step.parameter_count,
            device=str(self.step.device),
            data_identity=data,
            evaluation_identity=evaluation or self.run.evaluation_identity,
            saved_step=saved_step,
            choices=self.step.choices(),
            memory_bytes={},
            traffic=Tally(),
            peak_flops=peak,
            step_flops=None if peak is None else self.world.from_first(self._step_flops),
        )
        self.saved = self._progress()
        self.looked_at = self.step.number + FIRST
        self.scribe.write(self.run)
        if self.run.starts > 1:
            place = checkpoint.path.name if checkpoint else "step 0"
            self._tell_of("resumed", f"start {self.run.starts}, from {place}")

    def _identities(self) -> tuple[DataIdentity, DataIdentity | None]:
        """Of the data, and of the evaluation data where there is an evaluation. Takes about a second."""
        assert self.batches.dataset is not None
        data = self._identity(self.batches.dataset, self.run.data_identity)
        evaluates = self.recipe.evaluate_every is not None
        return data, self._identity(self.held_out, self.run.evaluation_identity) if evaluates else None

    def _identity(self, dataset: Dataset[Any], before: DataIdentity | None) -> DataIdentity:
        items = before.items if before is not None and before.items else None
        return identity_of(dataset, seed=self.recipe.seed, workers=self.recipe.workers, items=items)

    def _peak_flops(self) -> float | None:
        """Of all ranks."""
        peak = peak_flops(self.step.device, self.recipe.precision)
        return None if peak is None else peak * self.world.ranks

    def _step_flops(self) -> float:
        return step_flops(replace(self.recipe, dp_replicate=1, dp_shard=1, tp=1))

    def _open_data(self) -> None:
        """Micro-batches from the step that comes next; those of a step that spiked are passed over."""
        self.batches.close()
        self.batch = self.run.batch_of(self.step.number)
        self.batches = self._batches(ahead=True)
        self.batches.hashed = True

    def _batches(self, *, ahead: bool = False) -> Batches:
        layout = self.step.layout
        return batches_of(
            self.recipe, first_step=self.batch, ahead=ahead, rank=layout.data_rank, ranks=layout.data_ranks
        )

    def _take_steps(self) -> None:
        while self.step.number < (self.recipe.steps() or 0) and not self._asked_to_stop():
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
            if self.every is not None and self.every.due(self.saved, self._progress()):
                self._save()
            if self.tell is not None:
                self.tell(self.run, row)

    def _report(self) -> None:
        """What glances found for the first time is told once, and kept with the run."""
        new = [*self.glances.new_findings(), *(self._lost_state() if self.step.number == self.looked_at else ())]
        self.found += new
        if new:
            self.scribe.find(self.run, *self.found, checks=tuple(CHECKS))
        for finding in new:
            self._tell_of("finding", f"{finding.check}: {finding.seen}; {finding.remedy}")

    def _lost_state(self) -> Iterator[Finding]:
        """State that no checkpoint holds, looked for once, after a few steps."""
        identity, saved = self.run.data_identity, SavedStateFacts()
        if identity is not None:
            saved = replace(saved, unstable_samples=(identity.unstable, identity.items))
        if self.plain is not None:
            lost = self.plain.lost(partial(loss_of, self.step, self.last_batch))
            saved = replace(saved, lost_attributes=tuple(lost))
        self.plain = self.last_batch = None
        return judged(state_lost_on_reload.check, Facts(saved))

    def _take_one(self) -> LogRow:
        began, lr = time.perf_counter(), self.step.optimizer.param_groups[0]["lr"]
        self.data_seconds = 0.0
        self.batches.begin_step()
        try:
            with self.glances.at(self.step.number + 1), self.traffic.around_step():
                outcome = self.step(self._loaded())
        except NonFinite as error:
            self.scribe.append(self._row(error.step, error.loss, error.grad_norm, False, lr, began))
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
        for _ in range(self.step.micro_batches):
            began = time.perf_counter()
            batch = self.world.take(self.batches)
            self.data_seconds += time.perf_counter() - began
            if self.plain is not None:
                self.last_batch = batch
            yield batch

    def _row(self, step: int, loss: float, norm: float, updated: bool, lr: float, began: float) -> LogRow:
        told = self._told(time.perf_counter() - began)
        return LogRow(
            step=step,
            loss=loss,
            grad_norm=norm,
            clipped_norm=clip.norm_after(norm, self.recipe.max_grad_norm),
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
        """What all ranks together know of this step; whether one was asked to stop, and whether one lags."""
        told = tell_all(
            self.world,
            self.step,
            seconds=seconds,
            data_seconds=self.data_seconds,
            own_seconds=self.lookout.own_seconds(seconds),
            taken=self.batches.taken,
            hashes=self.batches.hashes,
            asked=self.stop.received is not None,
        )
        if told.asked_to_stop:
            self.stopped = self.stop.received or f"a signal to rank {told.asked_to_stop[0]}"
        late = self.lookout.late(told)
        if late:
            self._tell_of("straggler", late)
        return told

    def _asked_to_stop(self) -> bool:
        """On many ranks, only what all have heard of: they stop after the same step."""
        if self.world.ranks == 1 and self.stop.received is not None:
            self.stopped = self.stop.received
        return bool(self.stopped)

    def _evaluate(self) -> float:
        """The loss on the same held-out micro-batches each time. Training does not notice."""
        recipe, rank, ranks = self.recipe, self.step.layout.data_rank, self.step.layout.data_ranks
        batches = micro_batches(
            self.held_out,
            size=recipe.micro_batch_size,
            seed=recipe.seed,
            collate=recipe.collate,
            rank=rank,
            ranks=ranks,
        )
        with kept():
            seed_all(derive(recipe.seed, "evaluate"))
            taken = (self.world.take(batches) for _ in range(-(-recipe.evaluation_batches // ranks)))
            return self.step.evaluate(taken, most=recipe.evaluation_batches).item()

    @cached_property
    def held_out(self) -> Dataset[Any]:
        return build_evaluation(self.recipe)

    def _agree(self, row: LogRow) -> None:
        """A step that was taken before a crash and is taken again must come out the same, bit for bit."""
        first = self.replayed.pop(row.step, None)
        differences = row.differs_from(first) if first else []
        if first and differences:
            raise ReplayError(
                f"step {row.step} was taken before and came out differently: {'; '.join(differences)}\n"
                f"{row.why_it_differs(first)}; the run began with torch {self.run.torch_version} and "
                f"{self.run.threads} threads, now {torch.__version__} and {torch.get_num_threads()}\n"
                "to go on regardless, start it with --accept-change"
            )

    def _explained(self, error: NonFinite) -> NonFinite:
        """The error with its cause: the step is taken again without its update, to name the module and the samples."""
        self.step.optimizer.zero_grad(set_to_none=True)
        finding = first_nonfinite(self.step, self._numbered(self._batches()))
        if finding is None:
            return error
        self.scribe.find(self.run, finding)
        cause = f"{finding.seen}\n{finding.where}\n{finding.remedy}"
        return NonFinite(error.step, error.loss, error.grad_norm, cause)

    def _numbered(self, batches: Batches) -> Iterator[tuple[list[int], Any]]:
        for _ in range(self.step.micro_batches):
            batches.begin_step()
            batch = self.world.take(batches)
            yield list(batches.taken), batch

    def _rewind(self, step: int) -> bool:
        """Back to the last checkpoint before a step, and past the samples of that step."""
        self._settle()
        checkpoint = self.checkpoints.newest()
        if checkpoint is None:
            return False
        restore(self.step, checkpoint)
        rows = [row for row in self.world.from_first(self.run.rows) if row.step <= self.step.number]
        passed_over = (*self.run.passed_over, self.batch - 1)
        run = self.run.before_its_steps().after(rows)
        self.run = replace(run, attempt=self.run.attempt + 1, passed_over=passed_over)
        self.scribe.write(self.run)
        self.replayed, self.spikes = {}, Spikes(row.loss for row in rows if row.loss is not None)
        self._open_data()
        self._tell_of("rewound", f"to step {self.step.number}; the samples of step {step} are passed over")
        return True

    def _save(self) -> None:
        """A checkpoint of this step. If it cannot be written, the run goes on and the older ones stay."""
        self.lookout.compare_replicas()
        self.saved, began = self._progress(), time.perf_counter()
        try:
            self.world.from_first(self.scribe.sync)  # there is no checkpoint without the rows of its steps
            self.checkpoints.save(self.step.number, {**state_of(self.step), "generators": generators()})
        except (CheckpointError, DiskError) as error:
            self._tell_of("save-failed", str(error))
        stood_still = self.run.save_seconds + time.perf_counter() - began
        self.run = replace(self.run, saves=self.run.saves + 1, save_seconds=stood_still)
        self._note_saved()
        self.scribe.note(self.run)

    def _note_saved(self) -> None:
        """A checkpoint that is on the disk takes the run further: failures before it no longer count."""
        if self.checkpoints.published > self.run.saved_step:
            self.run = replace(self.run, failures=0, saved_step=self.checkpoints.published)

    def _give_up(self, error: BaseException) -> None:
        failed = not isinstance(error, KeyboardInterrupt)
        self.run = replace(
            self.run,
            status="failed" if failed else "interrupted",
            reason=f"{type(error).__name__}: {error}".strip(": "),
            failures=self.run.failures + failed,
        )
        self.scribe.note(self.run)

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
        done = self.step.number >= (self.recipe.steps() or 0)
        if done and (kept_as := self.scribe.keep_weights(self.run, self.step.model)) is not None:
            self.run = replace(self.run, weights_bytes=kept_as.bytes, weights_digest=kept_as.xxh3_128)
        reason = "" if done else f"stopped by {self.stopped} after step {self.step.number}"
        reason = "; ".join(filter(None, (reason, self.scribe.last_events(self.run))))
        status: Status = "finished" if done else "interrupted"
        self.run = replace(self.run, status=status, reason=reason, token_ledger=self._tokens())
        self.scribe.write(self.run)

    def _tokens(self) -> TokenLedger | None:
        """What became of the data's tokens, where it is made of tokens."""
        return ledger_of_run(
            self.batches.dataset,
            seed=self.recipe.seed,
            step_samples=self.recipe.tokens_per_step // self.recipe.tokens_per_sample,
            steps=self.batch,
            passed_over=self.run.passed_over,
        )

    def _progress(self) -> Progress:
        return Progress(self.step.number, self.run.tokens, self.run.seconds)

    def _tell_of(self, kind: str, text: str) -> None:
        step = self.step.number if hasattr(self, "step") else 0
        self.scribe.tell_of(self.run, step, kind, text)


def _standing_bytes(step: Step) -> dict[str, int]:
    """What stays on this rank from step to step, by account; gradients come and go within a step."""
    held = [value for state in step.optimizer.state.values() for value in state.values()]
    kept_in = {
        "parameters": step.model.parameters(),
        "gradients": step.parameters,
        "optimizer": (each for each in held if isinstance(each, torch.Tensor)),
        "buffers": step.model.buffers(),
    }
    return {account: sum(local_part(each).nbytes for each in tensors) for account, tensors in kept_in.items()}
