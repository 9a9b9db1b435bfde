"""Watches learning-rate schedulers: how often they step, and how far that takes them."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median_low
from typing import Any

import torch
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from surefoot.checks.engine.attempts import attempt
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, held, is_same
from surefoot.checks.facts.updates import Schedule, UpdateFacts
from surefoot.checks.samples.loaders import Loaders
from surefoot.events.callers import caller, in_scheduler, site

_TURNING = (lr_scheduler.CosineAnnealingLR,)
_SIMULATED = (lr_scheduler.StepLR, lr_scheduler.MultiStepLR, lr_scheduler.ExponentialLR, lr_scheduler.MultiplicativeLR)

_MOST_TRIED = 4096


@dataclass
class _Stepped:
    """One scheduler and its calls."""

    scheduler: LRScheduler
    where: str = ""
    calls: int = 0
    at: list[int] = field(default_factory=list)
    """At each call: the number of updates of its optimizer, including those a scaler skipped."""
    all_at: list[int] = field(default_factory=list)
    """At each call: the same number for all optimizers."""
    first_site: int = 0
    """Identifies the call of the first step. `is_made_again`: it ran again after an update of its optimizer."""
    is_made_again: bool = False
    last: LRScheduler | None = None
    """In a sequence of schedulers: the last one. `begins` is the call at which it starts."""
    begins: int = 0


class Schedules(Observer):
    """Records every scheduler that was created or stepped."""

    after = (Loaders,)
    stays = True

    def __init__(self, scene: Scene, loaders: Loaders) -> None:
        super().__init__(scene)
        self._loaders = loaders
        self.seen: dict[int, _Stepped] = {}
        self._rates: dict[Optimizer, list[float]] = {}

    def __enter__(self) -> Schedules:
        for kind in vars(lr_scheduler).values():
            if isinstance(kind, type) and issubclass(kind, LRScheduler):
                for name, heard in (("step", self._steps), ("__init__", self._made)):
                    if name in vars(kind):
                        self.follow(kind, name, after=heard)
        return self

    def _made(self, _: object, scheduler: LRScheduler, *args: object, **kwargs: object) -> None:
        if in_scheduler():
            return
        lists = [each for each in (*args, *kwargs.values()) if isinstance(each, list | tuple) and each]
        for part in (part for each in lists for part in each):
            self.seen.pop(id(part), None)  # the chain stands for its parts
        seen = self.seen.setdefault(id(scheduler), _Stepped(scheduler, caller()))
        if isinstance(scheduler, lr_scheduler.SequentialLR) and len(lists) >= 2:
            seen.last, seen.begins = lists[0][-1], lists[1][-1]

    def _steps(self, _: object, scheduler: LRScheduler, *__: object, **___: object) -> None:
        if in_scheduler():
            return
        seen = self.seen.setdefault(id(scheduler), _Stepped(scheduler))
        if not seen.calls:
            seen.where, seen.first_site = caller() or seen.where, site()
        elif seen.at[0] == 0 and not seen.is_made_again:
            seen.is_made_again = self.scene.tries_of(scheduler.optimizer) > 0 and site() == seen.first_site
        seen.calls += 1
        seen.at.append(self.scene.tries_of(scheduler.optimizer))
        seen.all_at.append(self.scene.tries)

    def update_begins(self, optimizer: Optimizer) -> None:
        rate = max((float(group.get("lr", 1.0)) for group in optimizer.param_groups), default=1.0)
        self._rates.setdefault(optimizer, []).append(rate)

    def begins(self, optimizer: Optimizer) -> bool:
        """Is the latest scheduler of an optimizer still at its start?"""
        its = [each.scheduler for each in self.seen.values() if is_same(each.scheduler.optimizer, optimizer)]
        return bool(its) and its[-1].last_epoch <= 0

    def begins_by_hand(self, optimizer: Optimizer, rate: float) -> bool:
        """Did another optimizer of this class start with this rate before the loop changed it by hand?"""
        scheduled = [each.scheduler.optimizer for each in self.seen.values()]
        for other, rates in self._rates.items():
            alike = type(other) is type(optimizer) and not is_same(other, optimizer)
            if alike and rates[0] == rate and len(set(rates)) > 1 and not any(is_same(other, e) for e in scheduled):
                return True
        return False

    def is_midway(self, optimizer: Optimizer) -> bool:
        """Has a scheduler of this optimizer already made some steps?"""
        its = [each.scheduler for each in self.seen.values() if is_same(each.scheduler.optimizer, optimizer)]
        return any(each.last_epoch > 1 for each in its)

    def is_put_forward(self) -> bool:
        """Was `last_epoch` of a scheduler set without calling `step`?"""
        return any(getattr(each.scheduler, "last_epoch", 0) > each.calls for each in self.seen.values())

    def _rates_of(self, optimizer: Optimizer) -> tuple[float, ...]:
        known = [rates for each, rates in self._rates.items() if is_same(each, optimizer)]
        longest = max(known, key=lambda rates: len(rates), default=[])
        return tuple(longest)

    def _rates_before(self, seen: _Stepped) -> tuple[float, ...]:
        """The learning rates of the schedule that this one continues. Empty if it does not resume one."""
        if not getattr(seen.scheduler, "last_epoch", 0) > seen.calls:
            return ()
        first = seen.all_at[0] if seen.all_at else 0
        before = [each for each in self.seen.values() if each.all_at and each.all_at[0] < first]
        alike = [each for each in before if (each.where, type(each.scheduler)) == (seen.where, type(seen.scheduler))]
        return self._rates_of(alike[-1].scheduler.optimizer) if alike else ()

    def _is_replaced(self, optimizer: Optimizer) -> bool:
        """Does another optimizer update the parameters of this one?"""
        others = [each for each in self.scene.stepped if not is_same(each, optimizer)]
        return any(not set(held(optimizer)).isdisjoint(held(each)) for each in others)

    def facts(self) -> Iterator[UpdateFacts]:
        yield UpdateFacts(schedules=tuple(self._schedules()))

    def _schedules(self) -> Iterator[Schedule]:
        for seen in self.seen.values():
            scheduler = seen.scheduler
            own, tries = (of(scheduler.optimizer) for of in (self.scene.updates_of, self.scene.tries_of))
            epoch = self._loaders.training_epoch()
            yield Schedule(
                kind=type(scheduler).__name__,
                where=seen.where,
                calls=seen.calls,
                updates=own,
                before_first_update=_is_early(seen),
                between_updates=_between(seen),
                horizon=_horizon(seen) or _end(scheduler, seen.calls, own),
                turns=isinstance(seen.last or scheduler, _TURNING),
                epoch=epoch,
                passes=self._loaders.training_passes(),
                share_after_epoch=_share(scheduler, round(seen.calls / tries * epoch)) if own and epoch else None,
                others_updated=self.scene.updates - own,
                replaced=self._is_replaced(scheduler.optimizer),
                rates=(*self._rates_before(seen), *self._rates_of(scheduler.optimizer)),
                ended=self.scene.ended,
                optimizer=self.scene.number_of(scheduler.optimizer),
                idle_calls=_idle_calls(seen),
            )
        yield from self._set_by_hand()

    def _set_by_hand(self) -> Iterator[Schedule]:
        """Learning rates that change without a scheduler."""
        scheduled = [seen.scheduler.optimizer for seen in self.seen.values()]
        for optimizer, rates in self._rates.items():
            if len(set(rates)) > 1 and not any(is_same(optimizer, each) for each in scheduled):
                count = len(rates)
                yield Schedule(
                    "the rate set by hand", "", count, count, before_first_update=False, between_updates=1,
                    horizon=None, turns=False, epoch=self._loaders.training_epoch(),
                    passes=self._loaders.training_passes(), share_after_epoch=None,
                    others_updated=self.scene.updates - count, rates=tuple(rates), ended=self.scene.ended,
                    optimizer=self.scene.number_of(optimizer), by_hand=True,
                )  # fmt: skip


def _is_early(seen: _Stepped) -> bool:
    """Is the scheduler stepped before the first update, by the line that also steps it later?"""
    if not seen.at or seen.at[0] > 0 or not seen.is_made_again or _between(seen) >= 2:
        return False
    return seen.all_at[0] == 0 or len(set(seen.at)) == len(seen.at)  # else its optimizer updates more rarely


def _between(seen: _Stepped) -> int:
    """How many calls usually come between two updates of any optimizer."""
    return _at_a_time([every for every, own in zip(seen.all_at, seen.at, strict=True) if own])


def _at_a_time(at: list[int]) -> int:
    """How many calls usually come in a row, if they come at many times; otherwise 0."""
    counts = Counter(at)
    regular = len(counts) >= 3 or any(each - 1 in counts for each in counts)
    return median_low(counts.values()) if regular else 0


def _idle_calls(seen: _Stepped) -> int:
    """Calls between which other optimizers made updates, but its own did not."""
    calls = list(zip(seen.at, seen.all_at, strict=True))
    return sum(own == before and every > then for (before, then), (own, every) in pairwise(calls))


def _horizon(seen: _Stepped) -> int | None:
    """The number of calls after which a scheduler ends, if it says so."""
    own = _own_horizon(seen.last or seen.scheduler)
    return None if own is None else seen.begins + own


def _own_horizon(scheduler: Any) -> int | None:
    for name in ("total_steps", "T_max"):
        if isinstance(getattr(scheduler, name, None), int):
            return int(getattr(scheduler, name))
    if isinstance(scheduler, lr_scheduler.PolynomialLR):
        return int(scheduler.total_iters)
    if isinstance(scheduler, lr_scheduler.MultiStepLR):
        return max(scheduler.milestones, default=None)
    for function in getattr(scheduler, "lr_lambdas", ()):
        known = getattr(function, "keywords", {}) or {}
        if isinstance(known.get("num_training_steps"), int):
            return int(known["num_training_steps"])
    return None


def _end(scheduler: LRScheduler, calls: int, updates: int) -> int | None:
    """The end of a schedule that does not state one, if it is still ahead. Warm-ups and restarts end before."""
    most = 2 * max(calls, updates)
    end = scheduler.total_iters if isinstance(scheduler, lr_scheduler.LinearLR) else _end_of_factor(scheduler, most)
    return end if end is not None and end >= calls else None


def _end_of_factor(scheduler: LRScheduler, most: int) -> int | None:
    """The first call, up to `most`, at which the factor of a `LambdaLR` has fallen to almost zero."""
    if not isinstance(scheduler, lr_scheduler.LambdaLR):
        return None
    factors: list[float] = []
    with attempt("asking a LambdaLR for later steps"):  # it may only work for the steps of the run
        factors = [float(scheduler.lr_lambdas[0](n)) for n in range(min(most, _MOST_TRIED))]
    top = factors.index(max(factors)) if factors else 0
    low = 0.02 * factors[top] if factors else 0.0
    ends = (
        n for n, (one, then) in enumerate(pairwise(factors)) if n > top and one <= low and (one <= 0 or one <= then)
    )
    return next(ends, None)


def _share(scheduler: LRScheduler, calls: int) -> float | None:
    """The share of the learning rate left after `calls` calls, simulated on a copy."""
    if not isinstance(scheduler, _SIMULATED) or calls < 1:
        return None
    stand_in = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    own = copy.copy(scheduler)
    own.optimizer, own.base_lrs, own.last_epoch = stand_in, [1.0], 0
    stand_in.param_groups[0]["initial_lr"] = 1.0
    if hasattr(own, "lr_lambdas"):
        own.lr_lambdas = own.lr_lambdas[:1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(min(calls, 10_000)):
            own.last_epoch += 1
            stand_in.param_groups[0]["lr"] = own.get_lr()[0]
    return float(stand_in.param_groups[0]["lr"])
