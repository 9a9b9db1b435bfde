"""watch: the same meters and checks around a loop you wrote yourself.

This file imports torch and records only inside functions, so that `import surefoot` stays quick.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.errors import RunError
from surefoot.events.frozen_heap import frozen_heap
from surefoot.events.watch_budget import OVERHEAD, Budget
from surefoot.recipe.kind import is_notebook
from surefoot.recipe.run_script import StopScript, no_script, run_script
from surefoot.torch_inside.version import require_torch

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

    from surefoot.checks.watcher import Watcher
    from surefoot.debug.memory.limited_memory import LimitedMemory
    from surefoot.meters.books import Books
    from surefoot.meters.pace import Pace
    from surefoot.meters.splits import Splits
    from surefoot.records.finding import Findings
    from surefoot.records.tally import Tally
    from surefoot.records.usage import Usage
    from surefoot.records.watched import Watched
    from surefoot.training.watched_run import WatchedRun

BOOKED_STEPS = 3
"""The most steps of a script that are measured operator by operator."""
MEASURING = 0.15
"""Seconds that measuring operators may always take. Long steps are measured less often."""
CHECKED_STEPS = 100
"""The most steps of a script that the checks look at, unless they look at all.

After that only the clock runs, and checks look at files and, if there was none before, at the first evaluation."""


class Seen:
    """The results of a watch so far. You can read them during the loop or after it."""

    def __init__(self, books: Books, watcher: Watcher, allow: Iterable[str]) -> None:
        self._books, self._watcher, self._allow = books, watcher, tuple(allow)

    @property
    def steps(self) -> list[Usage]:
        """One usage per optimizer update. A loop that ended without an update is one step."""
        return self._books.steps

    @property
    def tally(self) -> Tally:
        """The memory and FLOPs of the last step."""
        from surefoot.records.tally import Tally

        return self.steps[-1].tally if self.steps else Tally()

    @property
    def findings(self) -> Findings:
        """The findings so far."""
        return self._watcher.findings(recipe="watched loop", allow=self._allow)


@contextmanager
def watch(
    model: torch.nn.Module | None = None, *optimizers: torch.optim.Optimizer, allow: Iterable[str] = ()
) -> Iterator[Seen]:
    """Measures and checks the loop inside. It changes no number that the loop computes.

    If you name no model, every module with parameters that the loop calls is a model.
    """
    require_torch()
    from surefoot.checks.watcher import Watcher
    from surefoot.events.failsafe import Failsafe
    from surefoot.meters.books import Books

    books = Books(model, failsafe=Failsafe(on=True, doing="measuring"))
    watcher = Watcher(books.phases, *optimizers, failsafe=True)
    watcher.scene.source = getattr(sys.modules["__main__"], "__file__", None) or ""
    with books, watcher:
        yield Seen(books, watcher, allow)
        books.finish()
    watcher.scene.ended = True


def watch_script(
    script: str,
    args: Sequence[str] = (),
    *,
    steps: int | None = None,
    check_all: bool = False,
    overhead: float = OVERHEAD,
    sparing: bool = False,
    allow: Iterable[str] = (),
    keep: Path | None = None,
    memory_limit: int | None = None,
    data: bool = False,
) -> Watched:
    """Runs a script as `python script` would, and watches it. With `steps`, it stops after that many updates.

    It measures and checks the first steps. After that the script runs at full speed, unless `check_all` continues the
    checks to the end. `overhead` is the share of the script's own time that the checks may add: where they take long,
    they look at fewer steps. With `sparing`, it limits the measuring too. `keep` names a run directory for the results.
    `memory_limit` is the most bytes for the script's tensors: an operation that would take more raises
    `torch.OutOfMemoryError`. With `data`, it also profiles the rows that training and validation were given.
    """
    if not Path(script).is_file():
        raise RunError(no_script(script))
    with ExitStack() as until_told:

        def run() -> object:
            until_told.enter_context(frozen_heap())  # only now: what watching imports is part of it
            return run_script(script, args)

        return watch_call(
            run,
            name=script,
            steps=steps,
            check_all=check_all,
            overhead=overhead,
            sparing=sparing,
            allow=allow,
            keep=keep,
            memory_limit=memory_limit,
            data=data,
        )


def watch_call(
    run: Callable[[], object],
    *,
    name: str,
    steps: int | None = None,
    check_all: bool = False,
    overhead: float = OVERHEAD,
    sparing: bool = False,
    allow: Iterable[str] = (),
    keep: Path | None = None,
    memory_limit: int | None = None,
    data: bool = False,
) -> Watched:
    """Calls a function that trains, and watches it as `watch_script` watches a script."""
    watching = Watching(
        name,
        steps=steps,
        check_all=check_all,
        overhead=overhead,
        sparing=sparing,
        allow=allow,
        keep=keep,
        memory_limit=memory_limit,
        data=data,
    )
    alive: object = None  # the variables of a script: `record` looks at what they still hold
    with watching, suppress(StopScript):
        alive = run()  # noqa: F841
        watching.ran_to_its_end()
    return watching.record()


class Watching:
    """Measures and checks a training while entered, as `surefoot watch` does; `record()` is what it saw.

    `name` is the script that trains. Optimizers made before it was entered are known only if they are given. The
    callbacks for trainers of others use it too.
    """

    def __init__(
        self,
        name: str,
        *optimizers: torch.optim.Optimizer,
        steps: int | None = None,
        check_all: bool = False,
        overhead: float = OVERHEAD,
        sparing: bool = False,
        allow: Iterable[str] = (),
        keep: Path | None = None,
        memory_limit: int | None = None,
        data: bool = False,
    ) -> None:
        require_torch()
        from surefoot.checks.script_throttle import ScriptThrottle
        from surefoot.checks.watcher import Watcher
        from surefoot.events.failsafe import Failsafe
        from surefoot.meters.books import Books
        from surefoot.meters.pace import Pace

        self.name, self._allow, self._entered = name, tuple(allow), ExitStack()
        self._books = Books(
            most_steps=BOOKED_STEPS,
            failsafe=Failsafe(on=True, doing="measuring"),
            budget=Budget(overhead, always=MEASURING) if sparing else None,
        )
        phases = self._books.phases
        self._pace = Pace(phases, skipped=BOOKED_STEPS)
        self._watcher = Watcher(phases, *optimizers, failsafe=True)
        self._watcher.scene.source = str(Path(name).resolve())
        self._throttle = None
        if not check_all:
            measured = self._books.failsafe if sparing else None
            self._throttle = ScriptThrottle(self._watcher, CHECKED_STEPS, Budget(overhead), beside=measured)
        self._ends = _ends(self._books, self._pace, steps)
        self._books.beside(*self._ends.meters)
        self.kept: WatchedRun | None = None
        if keep is not None:
            from surefoot.training.watched_run import WatchedRun  # it imports most of torch.distributed

            self.kept = WatchedRun(keep, name, phases)
        self._memory = None if memory_limit is None else self._limited(memory_limit)
        self._data = self._splits() if data else None

    def _splits(self) -> Splits:
        from surefoot.checks.samples.loss_targets import LossTargets
        from surefoot.meters.splits import Splits

        splits = Splits(self._books.phases)
        self._watcher[LossTargets].tell = splits.lost
        return splits

    def _limited(self, limit_bytes: int) -> LimitedMemory:
        """Limits the memory of the script, and not that of surefoot's own looks at it."""
        from surefoot.debug.memory.limited_memory import LimitedMemory
        from surefoot.meters.memory_limit import device_here

        memory = LimitedMemory(limit_bytes, device_here())
        self._books.failsafe.aside = self._watcher.scene.failsafe.aside = memory.aside
        memory.snapshot = None if self.kept is None else self.kept.snapshot
        return memory

    def __enter__(self) -> Self:
        throttle, failsafe = self._throttle, self._watcher.scene.failsafe
        with ExitStack() as entering:
            for each in (self.kept, self._memory, self._books, self._watcher, throttle, self._data):
                if each is not None:
                    entering.enter_context(each)
            self._entered = entering.pop_all()
        self._books.phases.listeners += [
            self._pace,
            *([self.kept.rows] if self.kept else []),
            *([failsafe.listener(throttle)] if throttle else []),
            self._ends,
        ]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._entered.__exit__(kind, error, trace)
        if isinstance(error, RuntimeError | MemoryError):
            self._note_memory(error)

    def _note_memory(self, error: BaseException) -> None:
        """If memory ran out, lets the error carry what is known of it. A run directory keeps it too."""
        from surefoot.debug.memory.out_of_memory import attach, looked_at
        from surefoot.meters.memory_limit import device_here

        models, optimizers = self._books.phases.models, self._watcher.scene.optimizers
        record = looked_at(error, self._memory, device_here(), models, optimizers)
        if record is None:
            return
        if self.kept is not None:
            record = self.kept.keep_out_of_memory(record)
        attach(error, record)

    def ran_to_its_end(self) -> None:
        """Notes that the training was not cut short: what did not happen will not happen any more."""
        self._books.finish()
        self._watcher.scene.ended = True

    def record(self) -> Watched:
        """What was seen. A run directory gets it too, and counts as finished."""
        from surefoot.records.codec import from_json, to_json
        from surefoot.records.watched import Watched

        books, pace, models = self._books, self._pace, tuple(self._books.phases.models)
        seen = Watched(
            script=self.name,
            steps=pace.updates,
            models=self._watcher.models(),
            parameters=sum(each.numel() for model in models for each in model.parameters()),
            first=books.steps[0] if books.steps else None,
            steady=books.steps[-1] if books.steps else None,
            findings=self._watcher.findings(recipe=self.name, allow=self._allow),
            counted=self._ends.counted,
            failure=books.failsafe.failure,
            step_seconds=tuple(pace.step_seconds),
            data_seconds=pace.mean_data_seconds(),
            clock=pace.mean(),
            device=", ".join(sorted({str(each.device) for model in models for each in model.parameters()})),
            trained=self._ends.trained or self._watcher.scene.differentiated,
            data=self._data.profile() if self._data is not None else None,
        )
        if is_notebook(self.name):
            from surefoot.recipe.cells import in_cells

            seen = from_json(Watched, in_cells(to_json(seen), self.name))
        if self.kept is not None:
            self.kept.end(seen)
        return seen


def _ends(books: Books, pace: Pace, steps: int | None) -> Any:
    """A listener that hears the end of every update after all others."""
    from surefoot.events.listener import Listener, Segment
    from surefoot.meters.backwards import BackwardsMeter
    from surefoot.meters.syncs import SyncsMeter
    from surefoot.records.tally import Tally

    class Ends(Listener):
        """Counts the operators of the first steps, and stops the script after the last step."""

        meters = (SyncsMeter(books.phases), BackwardsMeter(books.phases))
        counted = Tally()
        trained = False

        def entered(self, segment: Segment) -> None:
            self.trained = self.trained or segment.name in ("backward", "update")

        def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
            if pace.updates <= len(books.steps):  # else the meters no longer see it
                booked = Tally.of(account for meter in self.meters for account in meter.accounts())
                self.counted = _in_each(self.counted, booked) if pace.updates > 1 else booked
            if steps is not None and pace.updates >= steps:
                raise StopScript

    return Ends()


def _in_each(before: Tally, now: Tally) -> Tally:
    """The counts of a step; of each line that reads values, no more than in the steps before it."""
    from surefoot.records.tally import Tally

    read = {account.name: account.amount for account in before.accounts}
    least = (
        replace(each, amount=min(each.amount, read.get(each.name, 0))) if each.name.startswith("syncs/") else each
        for each in now.accounts
    )
    return Tally.of(each for each in least if each.amount)
