"""Takes the steps of a run: gives each its data, observes it, and notes in a row what this rank knows of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

from surefoot.errors import NonFinite
from surefoot.meters.process_memory import held_bytes
from surefoot.records.finding import Finding
from surefoot.records.log import LogRow
from surefoot.step import Step
from surefoot.techniques import clip
from surefoot.training.current_run import CurrentRun
from surefoot.training.memory_guard import MemoryGuard
from surefoot.training.opening import Opened
from surefoot.training.reactions.from_all_ranks import FromAllRanks
from surefoot.training.reactions.reaction import TakenStep
from surefoot.training.scoring import floats_of

FindNonfinite = Callable[[Step, Iterable[tuple[list[int], Any]]], Finding | None]
"""Takes a step's micro-batches once more without its update. Returns what first was NaN or infinite, and where."""


class Observer(Protocol):
    """Something that watches steps while they are taken."""

    def around_step(self) -> AbstractContextManager[object]: ...


class BatchObserver(Protocol):
    """Something that looks at every micro-batch before the step gets it."""

    def see_batch(self, batch: Any) -> None: ...


class Steps:
    """Takes one step at a time on this rank."""

    def __init__(
        self,
        opened: Opened,
        current: CurrentRun,
        memory: MemoryGuard,
        find_nonfinite: FindNonfinite,
        *,
        observers: Sequence[Observer],
        batch_observers: Sequence[BatchObserver],
        from_all_ranks: FromAllRanks,
    ) -> None:
        self.step, self.data, self.current, self.memory = opened.step, opened.data, current, memory
        self.find_nonfinite, self.from_all_ranks = find_nonfinite, from_all_ranks
        self.observers, self.batch_observers = observers, batch_observers

    def take(self) -> TakenStep:
        """Takes the next step. A loss that is not finite is logged, then raised with its cause."""
        began, lr = time.perf_counter(), self.step.optimizer.param_groups[0]["lr"]
        self.memory.step_begins()
        self.data.begin_step()
        try:
            with ExitStack() as observed:
                for observer in self.observers:
                    observed.enter_context(observer.around_step())
                outcome = self.step(self._batches())
        except NonFinite as error:
            taken = TakenStep(self._row(error.step, error.loss, error.grad_norm, updated=False, lr=lr), began)
            self.from_all_ranks.after_step(taken)
            self.current.writer.append(taken.row)
            raise self._explained(error) from None
        loss, norm = outcome.loss.item(), None if outcome.grad_norm is None else outcome.grad_norm.item()
        parts = floats_of(outcome.parts) if outcome.parts.keys() - {"loss"} else {}
        row = self._row(self.step.number, loss, norm, updated=outcome.updated, lr=lr, parts=parts)
        return TakenStep(row, began)

    def _batches(self) -> Iterator[Any]:
        for batch in self.data.of_step():
            for observer in self.batch_observers:
                observer.see_batch(batch)
            yield batch

    def _row(
        self,
        step: int,
        loss: float,
        norm: float | None,
        *,
        updated: bool,
        lr: float,
        parts: dict[str, float] | None = None,
    ) -> LogRow:
        """The row of a step without what the exchange of all ranks adds: its time and its samples."""
        return LogRow(
            step=step,
            loss=loss,
            grad_norm=norm,
            clipped_norm=None if norm is None else clip.norm_after(norm, self.step.recipe.max_grad_norm),
            lr=lr,
            tokens=self.step.recipe.tokens_per_step,
            samples=None,
            samples_digest="",
            updated=updated,
            seconds=0.0,
            data_seconds=0.0,
            attempt=self.current.run.attempt,
            memory_bytes=held_bytes(self.step.device),
            train_metrics=parts or {},
        )

    def _explained(self, error: NonFinite) -> NonFinite:
        """The error with its cause: repeats the step without its update, to name the module and the samples."""
        self.step.optimizer.zero_grad(set_to_none=True)
        again = self.data.again()
        if self.step.is_own or again is None:
            return error
        finding = self.find_nonfinite(self.step, again)
        if finding is None:
            return error
        self.current.writer.find(self.current.run, finding)
        cause = f"{finding.seen}\n{finding.where}\n{finding.remedy}"
        return NonFinite(error.step, error.loss, error.grad_norm, cause)
