"""Attributes a spike or a NaN: replays its step with one thing changed at a time, and judges which change cured it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from surefoot.debug.errors.nonfinite import first_nonfinite
from surefoot.debug.spikes.find import is_broken
from surefoot.debug.spikes.measure import loss_on, norm_on, samples_of, units_of
from surefoot.debug.spikes.precision import guilty_module, in_float32
from surefoot.debug.spikes.samples import described, guilty
from surefoot.debug.spikes.updates import BACK, SMALLER, is_steep, jumped, replayed_slower
from surefoot.records.spike import Attribution, SpikeCause, Symptom, Variation
from surefoot.step import Step
from surefoot.training.replay import Numbered, Replay, buffers_kept
from surefoot.units import counted

OTHERS = 3
"""How many of the next batches are tried with the parameters before the step."""
MOST_NAMED = 8


@dataclass(frozen=True)
class _Suspect:
    """What may have made updates too large, and the factor that takes it away."""

    cause: SpikeCause
    factor: float
    change: str
    said: str
    remedy: str


class Attributing:
    """One symptom of a run. `attribution()` replays and varies; it writes nothing into the run."""

    def __init__(self, replay: Replay, symptom: Symptom) -> None:
        self.replay, self.symptom, self.number = replay, symptom, symptom.step
        self.variations: list[Variation] = []

    def attribution(self) -> Attribution:
        """Varies the precision, then the batch or the updates before: what float32 cures is no fault of samples."""
        self.replay.start_before(max(1, self.number - max(BACK)))
        unlike = self.replay.advance_to(self.number - 1)
        self.batches = self.replay.batches()
        found = self._measured(self.replay.step, self.batches)
        row = self.replay.logged[self.number]
        loss = loss_on(self.replay.step, self.batches)
        as_logged = not unlike and repr(loss) == repr(row.loss)
        self._note("nothing", found)
        base = Attribution(
            self.replay.run.path,
            len(self.replay.logged),
            self.symptom,
            from_step=self.replay.started_at,
            as_logged=as_logged,
            nonfinite=self._nonfinite(),
        )
        if self._is_ordinary(found):
            said = f"replayed here, step {self.number} is ordinary: {self._word(found)}"
            why = "it comes from the machine, another version or layout, or an operator that is not deterministic"
            return self._ended(base, "unknown", f"{said}; {why}", "")
        return self._precision(base) or self._batch_or_updates(base)

    # --------------------------------------------------------------------------------------- one thing at a time

    def _precision(self, base: Attribution) -> Attribution | None:
        recipe = self.replay.recipe
        if recipe.precision == "32-true":
            return None
        loss = self._measured(in_float32(self.replay.step), self.batches)
        if not self._note(f"float32 instead of {recipe.precision}", loss):
            return None
        module = ""
        if recipe.is_mixed:
            module = guilty_module(
                self.replay.step, self.batches, lambda made: self._is_ordinary(self._measured(made, self.batches))
            )
        if not module:
            said = f"{recipe.precision} is too coarse or too narrow: in float32 {self._word(loss)}"
            return self._ended(base, "precision", f"{said}; no single module suffices", "set precision=32-true")
        alone = self._measured(in_float32(self.replay.step, modules=[module]), self.batches)
        self._note(f"only `{module}` in float32", alone)
        said = f"`{module}` needs more than {recipe.precision}: with it alone in float32 {self._word(alone)}"
        return replace(self._ended(base, "precision", said, f"set float32={module!r}"), module=module)

    def _batch_or_updates(self, base: Attribution) -> Attribution:
        others = self._others()
        if others is not False and (found := self._samples(base, others=others)) is not None:
            return found
        if others is not True and (found := self._updates(base)) is not None:
            return found
        tried = "; ".join(each.change for each in self.variations[1:])
        return self._ended(base, "unknown", f"no single change brings the loss back; tried: {tried}", "")

    def _others(self) -> bool | None:
        """Whether other batches have an ordinary loss with these parameters; None if they cannot be made again."""
        losses = []
        for step in range(self.number + 1, self.number + 1 + OTHERS):
            batches = self.replay.batches_of_step(step)
            if batches is None:
                return None
            losses.append(self._measured(self.replay.step, batches))
        middle = sorted(losses, key=lambda each: math.inf if math.isnan(each) else each)[len(losses) // 2]
        return self._note("another batch", middle)

    def _samples(self, base: Attribution, *, others: bool | None) -> Attribution | None:
        step, batches, units = self.replay.step, self.batches, units_of(self.batches)
        found = guilty(units, lambda some: self._measured(step, batches, some), self._is_ordinary)
        if found is None and (len(units) > 1 or not others):
            return None
        bad, loss = found if found is not None else (units, self.variations[-1].loss)
        samples = samples_of(batches, sorted(bad))
        named = _listed(samples)
        if found is not None:
            self._note(f"without {named}", loss)
        how = (
            f"without {'it' if len(samples) == 1 else 'them'} {self._word(loss)}" if found else "it is the whole batch"
        )
        detail = described(batches, bad)
        said = f"{named}; {how}" + (f"; {detail}" if detail else "")
        remedy = "look at the data of these samples; leave them out, or bound their effect with max_grad_norm"
        return replace(self._ended(base, "samples", said, remedy), samples=tuple(samples), at_step=self.number)

    def _updates(self, base: Attribution) -> Attribution | None:
        """Makes the last updates smaller: to the usual rate or gradient norm if one stands out, else to a tenth."""
        last = self.number - 1
        for changed in BACK:
            if last - changed < self.replay.started_at:
                return None
            suspect = self._suspect(last - changed + 1, changed)
            replayed_slower(self.replay, last, changed, suspect.factor)
            loss = self._measured(self.replay.step, self.replay.batches())
            where = f"step {last}" if changed == 1 else f"steps {last - changed + 1} to {last}"
            if self._note(f"{suspect.change} in {where}", loss):
                said = f"{suspect.said}; with {suspect.change} {self._word(loss)}"
                return replace(self._ended(base, suspect.cause, said, suspect.remedy), at_step=last - changed + 1)
        return None

    def _suspect(self, first: int, changed: int) -> _Suspect:
        """What may have made the updates from a step on too large."""
        rows = self.replay.logged
        rate, norm = rows[first].lr, rows[first].grad_norm
        usual, steep = jumped(rows, first), is_steep(rows, first)
        if usual is not None:
            said = (
                f"the learning rate of step {first} was {rate:.3g}, {rate / usual:.3g} times the {usual:.3g} before it"
            )
            schedule = "look at the schedule at this step"
            return _Suspect("learning-rate", usual / rate, f"a rate of {usual:.3g}", said, schedule)
        if steep is not None and norm is not None:
            said = f"the update of step {first} was too large: its gradient norm is {norm:.3g}, usual is {steep:.3g}"
            clip = f"set max_grad_norm={steep:.2g}, and look at the samples of step {first}"
            return _Suspect("gradient", steep / norm, "an update of the usual size", said, clip)
        said = f"the learning rate, {rate:.3g}, is too large for the last {counted(changed, 'update')}"
        return _Suspect("learning-rate", SMALLER, "a tenth of the rate", said, "lower lr, or warm up longer")

    # --------------------------------------------------------------------------------------- measuring and judging

    def _measured(self, step: Step, batches: list[Numbered], units: object = None) -> float:
        """The number that stands out: the loss, or the gradient norm if only that is not finite."""
        return (norm_on if self.symptom.in_gradient else loss_on)(step, batches, units)  # type: ignore[arg-type]

    def _is_ordinary(self, found: float) -> bool:
        limit = None if self.symptom.in_gradient else self.symptom.limit
        return math.isfinite(found) and (limit is None or found <= limit)

    def _note(self, change: str, found: float) -> bool:
        """Notes a variation. Returns whether it cured the step."""
        self.variations.append(Variation(change, found, self._is_ordinary(found)))
        return self.variations[-1].cured

    def _word(self, found: float) -> str:
        return f"the {'gradient norm' if self.symptom.in_gradient else 'loss'} is {found:.4g}"

    def _nonfinite(self) -> str:
        if not is_broken(self.symptom):
            return ""
        with buffers_kept(self.replay.step):
            finding = first_nonfinite(self.replay.step, iter(self.batches))
        self.replay.step.optimizer.zero_grad(set_to_none=True)
        return "" if finding is None else f"{finding.seen} ({finding.where})"

    def _ended(self, base: Attribution, cause: SpikeCause, said: str, remedy: str) -> Attribution:
        return replace(base, cause=cause, said=said, remedy=remedy, variations=tuple(self.variations))


def _listed(samples: list[int]) -> str:
    """`samples 812 and 1,940`."""
    words = [f"{each:,}" for each in samples[:MOST_NAMED]]
    more = f" and {len(samples) - MOST_NAMED} more" if len(samples) > MOST_NAMED else ""
    if len(words) == 1:
        return f"sample {words[0]}"
    return f"samples {', '.join(words)}{more}" if more else f"samples {', '.join(words[:-1])} and {words[-1]}"
