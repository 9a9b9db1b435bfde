"""Later steps: whether the second step stands for all others. Where it may not, a plan takes more of them.

What makes steps differ leaves a trace in the first two: memory that a step keeps, counts that code compares, random
numbers that it reads, values of the batch. For each there is a way to look further. What was found, and what was not
looked at, is said first.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import numpy as np

from surefoot.errors import SurefootError
from surefoot.meters.books import Books
from surefoot.planning.extreme_draws import EXTREMES, extreme_draws, heard_draws
from surefoot.planning.step_counts import StepCounts
from surefoot.randomness import derive
from surefoot.records.plan import STEPS_DIFFER
from surefoot.records.usage import Usage
from surefoot.step import Step
from surefoot.units import bytes_text
from surefoot.world.fake_operators import FakeOperators
from surefoot.world.known_values import DRAWN, READ

LEAST, FEW, MANY = 4, 8, 40
"""How many steps are planned at least, and in a row, if steps may differ; and at most, while a step keeps more."""
CALLS = 60_000
"""Of operators in later steps, after which no further one begins: a budget that does not depend on the machine."""
JUMPS = 4
"""How many far steps are planned, to which counts are set ahead."""
REPEATS = 2
"""So many steps in a row that keep no more memory than the one before end the growth."""
Take = Callable[[], None]


GROWS, COUNTS, DRAWS, VALUES, SIZES = "grows", "counts", "draws", "values", "sizes"
COUNTS_UNKNOWN, OTHER_DRAWS, ANSWERS = "counts, unknown", "draws, unknown", "answers"
UNSEEN = (COUNTS_UNKNOWN, OTHER_DRAWS, ANSWERS)
"""Reasons that stay although all steps took the same: a plan cannot bring about what would change them."""


class Looks(Enum):
    """How far a plan looks for steps that differ."""

    NOT = auto()
    IN_A_ROW = auto()
    """At steps as they come."""
    ALL = auto()
    """At far steps too, and at extreme random numbers."""


class LaterFailed(SurefootError):
    """A later step raised an error. What it left behind is of no use: the plan begins anew, and looks less far."""


@dataclass
class Later:
    """What was found out about later steps."""

    reasons: dict[str, str] = field(default_factory=dict)
    """Why the second step may not stand for all others, and the line of code, if known."""
    usages: list[Usage] = field(default_factory=list)
    """Of every step but the first."""
    numbers: list[str] = field(default_factory=list)
    """What each of them is called."""
    in_a_row: int = 1
    """How many of them are steps as they come, one after the other."""
    growing: int = 0
    """Bytes by which the last step in a row was still raising what is kept."""
    unplanned: str = ""
    """Why no later step could be planned."""
    one_batch: bool = False

    @property
    def highest(self) -> int:
        """The place of the step with the highest peak."""
        peaks = [usage.peak.peak_bytes for usage in self.usages]
        return peaks.index(max(peaks)) if peaks else 0

    def told(self, *, steps: int | None) -> list[str]:
        """What a plan says first about steps that differ, or may differ unseen."""
        return [STEPS_DIFFER + each for each in self._told(steps)]

    def _told(self, steps: int | None) -> Iterator[str]:
        peaks = [usage.peak.peak_bytes for usage in self.usages]
        unseen = list(dict.fromkeys(self.reasons[each] for each in UNSEEN if each in self.reasons))
        if self.unplanned and set(self.reasons) - {ANSWERS}:
            yield f"{self.why}; {self._seen()} planned, others are not validated: {self.unplanned}"
        elif self.growing:
            yield self._growth(steps)
        elif len(set(peaks)) > 1 and set(self.reasons) - {ANSWERS, SIZES}:
            usual = int(statistics.median_low(peaks[: self.in_a_row]))
            yield (
                f"from {bytes_text(min(peaks))} to {bytes_text(max(peaks))}, usually {bytes_text(usual)}; the plan has "
                f"the highest of {len(peaks)}, {self.numbers[self.highest]}; others are not validated: {self.why}"
            )
        elif unseen:
            yield f"{'; '.join(unseen)}; {self._seen()} planned, others are not validated"

    @property
    def why(self) -> str:
        return "; ".join(dict.fromkeys(each for each in self.reasons.values() if each))

    def _seen(self) -> str:
        if self.one_batch:
            return "one batch was"
        return f"{len(self.usages) + 1} steps were"

    def _growth(self, steps: int | None) -> str:
        seen = len(self.usages) + 1
        rest = self.growing * (steps - seen) if steps is not None and steps > seen else 0
        more = f", which makes {bytes_text(rest)} more by step {steps:,}" if rest else ""
        return (
            f"each keeps {bytes_text(self.growing)} more, still in step {seen}, the last that was planned{more}: not "
            "validated"
        )


class Watch:
    """Takes the steps of a plan: two, and later ones if they may differ from the second."""

    def __init__(self, step: Step, books: Books, operators: FakeOperators, *, looks: Looks, places: int = 0) -> None:
        self.step, self.books, self.operators, self.looks = step, books, operators, looks
        self.places = places
        """How many steps have a micro-batch that may be the one that takes most; the second is the first of them."""
        recipe = step.recipe
        self.counts = StepCounts([*step.optimizers, step.model, recipe.loss, recipe.step])
        self.found = Later()
        self.drew = False
        self._kept: list[int] = []
        self._reads: list[dict[str, list[tuple[str, Any]]]] = []
        self._calls: list[int] = []

    def take(self, take: Take, number: int | None = None) -> None:
        """Takes a step, and sees what it kept, read and drew. Its counts are those of step `number`."""
        self.operators.reads, before = {}, self.operators.calls
        self.counts.log.step = number or len(self._kept) + 1
        with self._hearing_draws():
            take()
        self._kept.append(live_bytes(self.books))
        self._reads.append(self.operators.reads)
        self._calls.append(self.operators.calls - before)
        self.drew |= drew_on_host(self.step, python=not self._has_ranks)

    @property
    def _has_ranks(self) -> bool:
        return self.step.layout.ranks > 1

    @contextmanager
    def _hearing_draws(self) -> Iterator[None]:
        """Hears the draws of the user's code, where torch draws too: its fake collectives draw their numbers."""

        def drew() -> None:
            self.drew = True

        with heard_draws(drew) if self._has_ranks and not self.operators.extreme else nullcontext():
            yield

    def first_two(self, take: Take, batches: Callable[[], bool]) -> dict[str, str]:
        """Takes two steps. Returns why others may differ from the second; `batches` says whether theirs differed."""
        self.take(take)
        self.counts.look()
        self.take(take)
        reasons = self.found.reasons
        if self._kept[1] > self._kept[0]:
            reasons[GROWS] = "a step keeps memory"
        if self.places > 1:
            reasons[SIZES] = "micro-batches differ in shape"
        if self.counts.drew:
            reasons[OTHER_DRAWS] = "a generator of random numbers that the code keeps"
        if self.drew:
            reasons[DRAWS] = "random numbers of Python or numpy are drawn in a step"
        if drawn := self._read(DRAWN):
            reasons[DRAWS] = f"the code{drawn[0][0]} reads a random number"
        self._see_values(differ=batches())
        if self.counts.follow():
            reasons[COUNTS] = "the code counts its steps"
        return reasons

    def _read(self, of: str) -> list[tuple[str, Any]]:
        return [read for reads in self._reads for read in reads.get(of, [])]

    def _see_values(self, *, differ: bool) -> None:
        read = self._read(READ)
        if not read:
            return
        first, second = (reads.get(READ, []) for reads in self._reads)
        shapes = any(isinstance(value, list) for _, value in read)
        self.found.one_batch = not differ
        kind = VALUES if differ and (shapes or first != second) else ANSWERS
        self.found.reasons[kind] = f"the code{read[0][0]} reads values of the batch"

    def third(self, take: Take) -> None:
        """Takes a step in which counts are followed, and forgets them if no code compares them."""
        with self.counts.reads(), self._hearing():
            self.take(take)
        log, reasons = self.counts.log, self.found.reasons
        del reasons[COUNTS]
        if log.unknown:
            reasons[COUNTS_UNKNOWN] = f"the code{log.unknown} decides by a count of its steps"
        if log.steps:
            reasons[COUNTS] = f"the code{next(iter(log.steps))[0]} decides by a count of its steps"

    @contextmanager
    def _hearing(self) -> Iterator[None]:
        self.operators.hears = self.counts.heard
        try:
            yield
        finally:
            self.operators.hears = None

    def doubts(self, take: Take) -> str:
        """Why later steps may differ in a way that a plan can look at. Takes a third step if the code counts."""
        if COUNTS in self.found.reasons:
            self.counts.forget()
            self.counts.look()
            self.take(take)
            self.counts.follow()
            self.third(take)
        self.counts.forget()
        return "; ".join(why for reason, why in self.found.reasons.items() if reason != ANSWERS)

    def later(self, take: Take) -> Later:
        """Takes later steps, as many as the reasons ask for and the budget of operators allows."""
        found, names = self.found, [2]
        if self.looks is not Looks.NOT and set(found.reasons) - {ANSWERS}:
            if COUNTS in found.reasons:
                self.third(take)
            with self.counts.reads(), self._hearing():
                self._in_a_row(take)
                names = list(range(2, len(self._kept) + 1))
                found.in_a_row = len(names)
                if self.looks is Looks.ALL:
                    names += self._jumps(take)
                    found.numbers = [f"step {each:,}" for each in names]
                    found.numbers += self._extremes(take)
        if unknown := self.counts.log.unknown:
            found.reasons[COUNTS_UNKNOWN] = f"the code{unknown} decides by a count of its steps"
        self.counts.forget()
        found.numbers = found.numbers or [f"step {each:,}" for each in names]
        found.usages = list(self.books.steps[1:])
        return found

    def _most(self) -> int:
        """How many steps the budget allows."""
        return max(LEAST, 2 + CALLS // max(1, self._calls[1]))

    def _in_a_row(self, take: Take) -> None:
        reasons = self.found.reasons
        steps = FEW if set(reasons) - {ANSWERS, GROWS, SIZES} else max(2, 1 + self.places)
        while len(self._kept) < min(steps, self._most()):
            self.take(take)
        if GROWS in reasons or steps == FEW:
            while self._grew() and len(self._kept) < min(MANY, self._most()):
                self.take(take)
            if self._grew():
                half = len(self._kept) // 2
                self.found.growing = (self._kept[-1] - self._kept[half - 1]) // (len(self._kept) - half)

    def _grew(self) -> bool:
        """Whether one of the last steps kept more memory than all before it."""
        return max(self._kept[-REPEATS:]) > max(self._kept[:-REPEATS], default=0)

    def _jumps(self, take: Take) -> Iterator[int]:
        """Sets counts ahead to the steps at which a comparison comes out otherwise."""
        log, jumps = self.counts.log, 0
        while ahead := {step: line for (line, *_), step in log.steps.items() if step > log.step}:
            target = min(ahead)
            if jumps == JUMPS:
                self.found.reasons[COUNTS_UNKNOWN] = f"the code{ahead[target]} decides by a count of its steps"
                return
            jumps += 1
            self.counts.go_ahead(target - log.step - 1)
            in_a_row = len(self._kept)
            self.take(take, target)
            del self._kept[in_a_row:]
            yield target

    def _extremes(self, take: Take) -> Iterator[str]:
        """Takes steps whose random numbers are all low, and all high."""
        if DRAWS not in self.found.reasons:
            return
        for extreme in EXTREMES:
            self.operators.extreme, self.operators.extreme_since, self.drew = extreme, self.operators.calls, False
            try:
                with extreme_draws(extreme):
                    self.take(take)
            finally:
                self.operators.extreme = ""
            if self.drew or self.operators.unbounded:
                self.found.reasons[OTHER_DRAWS] = self.found.reasons[DRAWS]
            yield f"with all draws {extreme}"


def live_bytes(books: Books) -> int:
    """The bytes that are live now, without batches."""
    followed = books.memory.followed()
    return sum(storage.nbytes() for storage, booking in followed if getattr(booking, "account", "") != "inputs")


def drew_on_host(step: Step, *, python: bool) -> bool:
    """Whether numpy's generator, or Python's, was drawn from since the last micro-batch was seeded."""
    last = 0 if step.is_own else (step.micro_batches - 1) * step.layout.data_ranks + step.layout.data_rank
    seed = derive(step.recipe.seed, "step", step.number - 1, "rank", 0, "micro-batch", last)
    array, expected = np.random.get_state(), np.random.RandomState(seed & 0xFFFF_FFFF).get_state()
    plain = array[2] == expected[2] and bool((array[1] == expected[1]).all())  # type: ignore[index]
    return not plain or (python and random.getstate() != random.Random(seed).getstate())
