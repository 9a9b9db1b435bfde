"""The training loop: takes the steps of a run on one rank, and calls its reactions after each."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from surefoot.checkpoint.interval import Interval
from surefoot.checkpoint.mirror import Mirror
from surefoot.checkpoint.store import Checkpoints
from surefoot.recipe.recipe import Recipe
from surefoot.records.event import STOPPED_EARLY
from surefoot.records.run import Run
from surefoot.training.current_run import CurrentRun
from surefoot.training.end import ended, failed, with_weights
from surefoot.training.guards.signals import StopRequests
from surefoot.training.memory_guard import MemoryGuard
from surefoot.training.monitor import Monitor
from surefoot.training.opening import Opened, open_run
from surefoot.training.reactions.best import Best
from surefoot.training.reactions.callbacks import Callbacks
from surefoot.training.reactions.choose_workers import ChooseWorkers
from surefoot.training.reactions.from_all_ranks import FromAllRanks
from surefoot.training.reactions.measurements import BatchMetrics, Evaluation, LayersLog
from surefoot.training.reactions.reaction import Reaction
from surefoot.training.reactions.rewind import Rewind
from surefoot.training.reactions.save import Save
from surefoot.training.reactions.step_log import (
    Log,
    NextData,
    Repetition,
    SkippedUpdate,
    SlowDecline,
    Tell,
    Telling,
    Totals,
)
from surefoot.training.run_writer import RunWriter
from surefoot.training.saved import Saved
from surefoot.training.scoring import scores_of
from surefoot.training.steps import FindNonfinite, Steps
from surefoot.world.world import RealWorld


def trained(
    recipe: Recipe,
    run: Run,
    world: RealWorld,
    *,
    every: Interval | None,
    stop: StopRequests,
    tell: Tell | None,
    accepted: bool,
    mirror: Mirror,
    memory: MemoryGuard,
    find_nonfinite: FindNonfinite,
) -> Run:
    """Trains one rank from the run's last checkpoint, or from step 0, to its end or until a signal asks it to stop.

    All ranks execute the same code and make the same decisions. If it fails, the run's directory says why.
    """
    current = CurrentRun(run, RunWriter(run, rank=world.rank))
    checkpoints = Checkpoints(run.checkpoints, keep_last=recipe.keep_last, mirror=mirror)
    saved = Saved(current, checkpoints, Best(recipe, current, checkpoints))
    try:
        with ExitStack() as open_things:
            open_things.enter_context(memory)
            opened = open_run(recipe, current, world, checkpoints, accepted=accepted, memory=memory)
            monitor = Monitor(opened.step, current)
            training = Training(
                opened,
                current,
                saved,
                monitor,
                memory,
                every=every,
                stop=stop,
                tell=tell,
                find_nonfinite=find_nonfinite,
            )
            training.begin()
            open_things.enter_context(current.writer.log_of(current.run))
            open_things.callback(opened.data.close)
            open_things.enter_context(monitor)
            training.keep_first_weights()
            training.take_steps()
            training.end()
    except BaseException as error:
        lost = world.failed(error, step=None if current.step is None else current.step.number + 1)
        saved.settle()  # what is being written is progress, which the record of the failure counts
        current.run = failed(current.run, lost or error)
        current.note()
        memory.note(error, current)
        if not isinstance(error, KeyboardInterrupt):
            mirror.end(current.run)
        if lost is not None:
            raise lost from error
        raise
    finally:
        checkpoints.close()
    mirror.end(current.run)
    return current.run


class Training:
    """The steps of a run that was opened, and what happens before, after and between them."""

    def __init__(
        self,
        opened: Opened,
        current: CurrentRun,
        saved: Saved,
        monitor: Monitor,
        memory: MemoryGuard,
        *,
        every: Interval | None,
        stop: StopRequests,
        tell: Tell | None,
        find_nonfinite: FindNonfinite,
    ) -> None:
        self.opened, self.current, self.saved, self.memory = opened, current, saved, memory
        step, data, self.best = opened.step, opened.data, saved.best
        self.all_ranks = FromAllRanks(opened, current, monitor, stop)
        self.save = Save(opened, current, saved, monitor, memory, every=every)
        self.workers = ChooseWorkers(opened, current)
        layers, metrics, repetition = LayersLog(opened, current), BatchMetrics(opened), Repetition(opened, current)
        self.steps = Steps(
            opened,
            current,
            memory,
            find_nonfinite,
            observers=(opened.findings, opened.traffic, layers),
            batch_observers=(opened.findings, metrics),
            from_all_ranks=self.all_ranks,
        )
        self.reactions: tuple[Reaction, ...] = (
            layers,  # first: reading what was measured is part of the time of the step, which the exchange ends
            self.all_ranks,
            SkippedUpdate(current),
            NextData(data, current),  # after the exchange, which reads the samples of this step
            metrics,
            Evaluation(opened),
            repetition,  # a row that differs from the one it repeats must not reach the log
            Log(current),  # before everything that acts on the step: whoever sees its effects finds its row
            Rewind(opened, current, saved, repetition),  # a step that is taken back counts nowhere below
            Totals(step, opened.traffic, current),
            SlowDecline(current),
            opened.findings,
            monitor,  # raises if replicas differ, before the step can be chosen as the best or saved
            self.best,
            Callbacks(step, current),  # before the step is saved: killed in between, the step and its call are repeated
            self.save,  # knows from `best` whether this step must be saved; the log and the totals hold the step
            self.workers,  # opens the data anew, from the next step on
            Telling(tell, current),  # last: it shows the run with all that the step changed
        )

    def begin(self) -> None:
        """Brings the run's record and its file to where the run stands."""
        standing = self.opened.standing
        self.best.begin(standing.taken)
        self.workers.begin()
        self.opened.findings.begin()
        self.current.write()
        if self.current.run.starts > 1:
            self.current.event("resumed", f"start {self.current.run.starts}, from {standing.place}")

    def keep_first_weights(self) -> None:
        """Saves a model that was filled from `init_from`, so that a resume does not read that again."""
        if self.opened.filled is not None:
            self.current.event("initialised", str(self.opened.filled))
            self.save.save()
            self.saved.settle()

    def take_steps(self) -> None:
        """Takes steps until the run is done or asked to stop."""
        while not self._done() and not self.all_ranks.asked_to_stop():
            taken = self.steps.take()
            for reaction in self.reactions:
                if taken.stands:
                    reaction.after_step(taken)

    def end(self) -> None:
        """Saves the last step, and the weights and test scores of a run that is done."""
        step, current = self.opened.step, self.current
        saves = bool(self.all_ranks.stopped) or self.save.every is not None
        if saves and self.save.last.steps != step.number:
            self.save.save()
        self.saved.settle()
        if saves and current.run.saved_step < step.number:
            current.change(unsaved=self.saved.refused)
        step.world.from_first(current.writer.sync)
        if done := self._done():
            self._finish()
        current.run = ended(
            current.run, step, self.opened.data, current.writer, stopped=self.all_ranks.stopped, done=done
        )
        current.write()

    def _finish(self) -> None:
        step, data, current, selection = self.opened.step, self.opened.data, self.current, self.best.selection
        if step.number < (step.recipe.steps() or 0):
            current.event(STOPPED_EARLY, f"{selection.since} evaluations were no better than {selection}")
        with self.memory.aside():
            current.run = with_weights(current.run, step, current.writer, self.saved.checkpoints, best=selection.step)
        current.run = replace(current.run, tests={name: scores_of(step, data, name) for name in step.recipe.tests()})

    def _done(self) -> bool:
        """Whether the run took its last step, or waited in vain for a better evaluation."""
        return self.opened.step.number >= (self.opened.step.recipe.steps() or 0) or self.best.selection.gives_up
