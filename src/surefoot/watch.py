"""watch: the same meters and checks around a loop you wrote yourself.

Nothing here imports torch before it is used, so that `import surefoot` stays quick.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from surefoot.errors import RunError
from surefoot.records.finding import Findings
from surefoot.records.tally import Tally
from surefoot.records.usage import Usage
from surefoot.records.watched import Watched

if TYPE_CHECKING:
    import torch

    from surefoot.checks.watcher import Watcher
    from surefoot.meters.books import Books

BOOKED_STEPS = 3
"""How many steps of a script are booked; after that its operators are no longer looked at."""
CHECKED_STEPS = 100
"""How many steps of a script the checks look at, unless they are to look at all; after that only the clock runs,
files are looked at, and the first evaluation if there was none before."""


class Seen:
    """What a watch has seen so far. Ask during the loop or after it."""

    def __init__(self, books: Books, watcher: Watcher, allow: Iterable[str]) -> None:
        self._books, self._watcher, self._allow = books, watcher, tuple(allow)

    @property
    def steps(self) -> list[Usage]:
        """One usage per optimizer update."""
        return self._books.steps

    @property
    def tally(self) -> Tally:
        """What the last step took."""
        return self.steps[-1].tally if self.steps else Tally()

    @property
    def findings(self) -> Findings:
        """What the rules say of the facts so far."""
        return self._watcher.findings(recipe="watched loop", allow=self._allow)


@contextmanager
def watch(
    model: torch.nn.Module | None = None, *optimizers: torch.optim.Optimizer, allow: Iterable[str] = ()
) -> Iterator[Seen]:
    """Books and checks the loop inside. It changes no number that the loop computes.

    Without a model, every module with parameters that the loop calls is one.
    """
    from surefoot.checks.watcher import Watcher
    from surefoot.meters.books import Books

    books = Books(model)
    watcher = Watcher(books.phases, *optimizers, failsafe=True)
    watcher.scene.source = getattr(sys.modules["__main__"], "__file__", None) or ""
    with books, watcher:
        yield Seen(books, watcher, allow)
    watcher.scene.ended = True


def watch_script(
    script: str,
    args: Sequence[str] = (),
    *,
    steps: int | None = None,
    check_all: bool = False,
    allow: Iterable[str] = (),
    keep: Path | None = None,
) -> Watched:
    """Runs a script as `python script` would, and watches it; it is stopped after `steps` updates if given.

    Its first steps are booked and checked. After that it runs as fast as ever, unless `check_all` keeps the checks
    looking to the end. `keep` names a run directory for what is seen.
    """
    if not Path(script).is_file():
        raise RunError(f"no script {script}")
    return watch_call(lambda: _run(script, args), name=script, steps=steps, check_all=check_all, allow=allow, keep=keep)


def watch_call(
    run: Callable[[], object],
    *,
    name: str,
    steps: int | None = None,
    check_all: bool = False,
    allow: Iterable[str] = (),
    keep: Path | None = None,
) -> Watched:
    """Calls something that trains, and watches it, as `watch_script` does a script."""
    from surefoot.checks.script_throttle import ScriptThrottle
    from surefoot.checks.watcher import Watcher
    from surefoot.events.listener import Listener
    from surefoot.meters.backwards import BackwardsMeter
    from surefoot.meters.books import Books
    from surefoot.meters.pace import Pace
    from surefoot.meters.syncs import SyncsMeter
    from surefoot.training.watched_run import WatchedRun

    class Ends(Listener):
        """Counts the operators of the first steps, and ends the script after the last."""

        counted = Tally()

        def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
            if pace.updates <= BOOKED_STEPS:
                self.counted = Tally.of(account for meter in beside for account in meter.accounts())
            if steps is not None and pace.updates >= steps:
                raise _EnoughSteps

    books = Books(most_steps=BOOKED_STEPS)
    beside = (SyncsMeter(books.phases), BackwardsMeter(books.phases))
    pace, ends = Pace(books.phases, skipped=BOOKED_STEPS), Ends()
    watcher = Watcher(books.phases, failsafe=True)
    turns = ScriptThrottle(watcher, CHECKED_STEPS)
    watcher.scene.source = str(Path(name).resolve())
    books.beside(*beside)
    kept = WatchedRun(keep, name, books.phases) if keep is not None else None
    with kept or nullcontext(), books, watcher, nullcontext() if check_all else turns:
        books.phases.listeners += [
            pace,
            *([kept.rows] if kept else []),
            *([] if check_all else [watcher.scene.failsafe.listener(turns)]),
            ends,
        ]
        with suppress(_EnoughSteps):
            run()
            watcher.scene.ended = True
    models = tuple(books.phases.models)
    seen = Watched(
        script=name,
        steps=pace.updates,
        models=tuple(type(model).__name__ for model in models),
        parameters=sum(each.numel() for model in models for each in model.parameters()),
        first=books.steps[0] if books.steps else None,
        steady=books.steps[-1] if books.steps else None,
        findings=watcher.findings(recipe=name, allow=allow),
        counted=ends.counted,
        step_seconds=tuple(pace.step_seconds),
        data_seconds=pace.mean_data_seconds(),
        clock=pace.mean(),
        device=", ".join(sorted({str(each.device) for model in models for each in model.parameters()})),
    )
    if kept is not None:
        kept.end(seen)
    return seen


class _EnoughSteps(BaseException):
    """Ends a script from inside its optimizer; no `except Exception` of the script catches it."""


def _run(script: str, args: Sequence[str]) -> None:
    """Runs a script to its end, as if it were started by itself."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [script, *args]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            raise
    finally:
        sys.argv, sys.path[:] = argv, path
