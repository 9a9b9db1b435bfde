"""watch: the same meters and checks around a loop you wrote yourself.

Nothing here imports torch before it is used, so that `import surefoot` stays quick.
"""

from __future__ import annotations

import gc
import runpy
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from surefoot.errors import RunError
from surefoot.records.finding import Findings
from surefoot.records.tally import Account, Tally
from surefoot.records.usage import Usage
from surefoot.records.watched import Watched

if TYPE_CHECKING:
    import torch

    from surefoot.checks.witness import Witness
    from surefoot.meters.books import Books

BOOKED_STEPS = 3
"""How many steps of a script are booked; after that its operators are no longer looked at."""
CHECKED_STEPS = 10
"""How many steps of a script the checks look at, unless they are to look at all; after that only the clock runs."""


class Seen:
    """What a watch has seen so far. Ask during the loop or after it."""

    def __init__(self, books: Books, witness: Witness, allow: Iterable[str]) -> None:
        self._books, self._witness, self._allow = books, witness, tuple(allow)

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
        """What the checks say of the evidence so far."""
        from surefoot.checks import run_checks

        return run_checks(self._witness.evidence(), recipe="watched loop", allow=self._allow)


@contextmanager
def watch(
    model: torch.nn.Module | None = None, *optimizers: torch.optim.Optimizer, allow: Iterable[str] = ()
) -> Iterator[Seen]:
    """Books and checks the loop inside. It changes no number that the loop computes.

    Without a model, every module with parameters that the loop calls is one.
    """
    from surefoot.checks.witness import Witness
    from surefoot.meters.books import Books

    books = Books(model)
    witness = Witness(books.phases, *optimizers)
    books.phases.listeners.append(witness)
    with books:
        yield Seen(books, witness, allow)


def watch_script(
    script: str,
    args: Sequence[str] = (),
    *,
    steps: int | None = None,
    check_all: bool = False,
    allow: Iterable[str] = (),
) -> Watched:
    """Runs a script as `python script` would, and watches it; it is stopped after `steps` updates if given.

    Its first steps are booked and checked. After that it runs as fast as ever, unless `check_all` keeps the checks
    looking to the end.
    """
    from surefoot.checks import run_checks
    from surefoot.checks.witness import Witness
    from surefoot.meters.books import Books
    from surefoot.meters.clock import ClockMeter
    from surefoot.meters.collectives import CollectivesMeter
    from surefoot.meters.syncs import SyncsMeter
    from surefoot.phases import Listener

    class Counter(Listener):
        """Counts updates; once the books are closed it times them."""

        updates = 0
        counted = Tally()
        clock: ClockMeter | None = None

        def __init__(self) -> None:
            self.moments: list[float] = []

        def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
            self.updates += 1
            if self.updates <= BOOKED_STEPS:
                self.counted = Tally.of(account for meter in beside for account in meter.accounts())
            if self.updates == BOOKED_STEPS:
                self.clock = ClockMeter(books.phases)
                books.phases.listeners.append(self.clock)
            if self.updates >= BOOKED_STEPS:
                self.moments.append(perf_counter())
            if self.updates == CHECKED_STEPS and not check_all:
                books.phases.listeners = [each for each in books.phases.listeners if each is not witness]
                books.phases.only_models()
            if steps is not None and self.updates >= steps:
                raise _EnoughSteps

        def mean_clock(self) -> Tally:
            spent = [] if self.clock is None else self.clock.accounts()
            timed = max(1, len(self.moments) - 1)
            return Tally.of(Account(each.name, each.amount / timed, each.unit) for each in spent)

    if not Path(script).is_file():
        raise RunError(f"no script {script}")
    books = Books(most_steps=BOOKED_STEPS)
    beside = (SyncsMeter(books.phases), CollectivesMeter(books.phases))
    books.beside(*beside)
    counter = Counter()
    witness = Witness(books.phases)
    books.phases.listeners.append(witness)
    with books:
        books.phases.listeners.append(counter)
        _run(script, args)
    witness.optimizers += _live_optimizers()
    models = tuple(books.phases.models)
    return Watched(
        script=script,
        steps=counter.updates,
        models=tuple(type(model).__name__ for model in models),
        parameters=sum(each.numel() for model in models for each in model.parameters()),
        first=books.steps[0] if books.steps else None,
        steady=books.steps[-1] if books.steps else None,
        findings=run_checks(witness.evidence(), recipe=script, allow=allow),
        counted=counter.counted,
        step_seconds=tuple(later - earlier for earlier, later in pairwise(counter.moments)),
        clock=counter.mean_clock(),
    )


class _EnoughSteps(BaseException):
    """Ends a script from inside its optimizer; no `except Exception` of the script catches it."""


def _run(script: str, args: Sequence[str]) -> None:
    argv, path = sys.argv, list(sys.path)
    sys.argv = [script, *args]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except _EnoughSteps:
        pass
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            raise
    finally:
        sys.argv, sys.path[:] = argv, path


def _live_optimizers() -> list[torch.optim.Optimizer]:
    """Optimizers that exist, whether or not they have made an update yet."""
    from torch.optim import Optimizer

    return [each for each in gc.get_objects() if issubclass(type(each), Optimizer)]
