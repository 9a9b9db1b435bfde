"""After an out-of-memory error: what the plan says of the step, and which settings of the recipe would fit.

The search keeps the update as it is: a smaller micro-batch is taken more often. If the batch was larger than usual, its
largest sample is planned, in place of the first ones.
"""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from torch.utils.data import Dataset

from surefoot.data.batches import has_samples
from surefoot.errors import SurefootError
from surefoot.planning.fit.search import what_fits
from surefoot.planning.fit.trials import command_of, turned
from surefoot.planning.recipe_plan import plan_recipe
from surefoot.recipe.build import build_data
from surefoot.recipe.recipe import Recipe
from surefoot.records.out_of_memory import OutOfMemory, Setting
from surefoot.records.plan import Plan
from surefoot.records.search import Budget, Search, Trial
from surefoot.trees import tensors_in
from surefoot.units import bytes_text, knobs_text

_MOST_NAMED = 3
"""How many settings are named."""
_MOST_READ = 2048
"""How many samples are read to find the largest."""


def with_settings(
    record: OutOfMemory, recipe: Recipe, *, planned: Plan | None = None, on: str | None = None
) -> OutOfMemory:
    """What is known of an out-of-memory error, with the plan of the step and the settings that would fit.

    `on` names the GPU that ran out of memory. Without it and without a limit, there is nothing to fit into.
    """
    try:
        return _with_settings(record, recipe, planned or plan_recipe(recipe, on=on), on)
    except SurefootError as error:
        return record.noting(f"settings that fit were not searched for: {error}")


def _with_settings(record: OutOfMemory, recipe: Recipe, planned: Plan, on: str | None) -> OutOfMemory:
    record = dataclasses.replace(record, planned_bytes=planned.live_bytes)
    if record.limit_bytes is None and on is None:
        return record
    searched, peak = _with_same_update(recipe), planned.live_bytes
    if record.batch.is_unusual and (largest := _of_largest_sample(recipe)) is not None:
        searched = _with_same_update(largest)
        peak = plan_recipe(largest).live_bytes
        record = dataclasses.replace(
            record, planned_bytes=peak, planned_batch="a batch of samples as large as the largest"
        )
    room = record.room_bytes
    if room is not None and peak <= room:
        if record.phase not in ("forward", "loss", "backward", "update"):
            return record.noting(f"the step itself fits: it failed in {record.phase or 'another phase'}")
        room = peak - 1  # the plan was too low: what it says of this setting does not fit either
    if room is not None and room <= 0:
        return record.noting(f"{bytes_text(record.outside_bytes)} are live outside the step: more than the limit")
    return _named(record, recipe, what_fits(searched, on=on, budget=Budget(room)))


def _named(record: OutOfMemory, recipe: Recipe, search: Search) -> OutOfMemory:
    """Names what fits: first what costs the fewest FLOPs, then what costs more and takes a larger micro-batch."""
    holding = sorted((each for each in search.trials if each.holds), key=_cost)
    if not holding:
        least = min(search.trials, key=lambda each: each.memory_bytes, default=None)
        said = (
            ""
            if least is None
            else f"; the smallest, {knobs_text(least.knobs)}, takes {bytes_text(least.memory_bytes)}"
        )
        return record.noting(f"no setting that was planned fits{said}", *search.notes)
    better = [holding[0]]
    for each in holding[1:]:
        if each.micro_batch_size > better[-1].micro_batch_size:
            better.append(each)
    first = better[0]
    larger = [each for each in search.trials if _is_beyond(each, first) and each.memory_bytes > _surely_free(record)]
    beyond = min(larger, key=lambda each: each.memory_bytes, default=None)
    return dataclasses.replace(
        record,
        fits=tuple(_setting(recipe, each) for each in better[:_MOST_NAMED]),
        beyond=None if beyond is None else _setting(recipe, beyond),
        notes=(*record.notes, *search.notes),
    )


def _surely_free(record: OutOfMemory) -> float:
    """What a step could have at most: batches that wait outside of it are smaller if the micro-batch is."""
    if record.limit_bytes is None:
        return 0
    return record.limit_bytes - max(0, record.outside_bytes - 2 * record.by_account().get("inputs", 0))


def _cost(trial: Trial) -> tuple[float, ...]:
    return trial.flops_per_token, -trial.micro_batch_size, trial.memory_bytes


def _is_beyond(trial: Trial, first: Trial) -> bool:
    """Whether it differs from another by a larger micro-batch only, and does not hold."""
    others = [{**each.knobs, "micro_batch_size": 0} for each in (trial, first)]
    return not trial.holds and others[0] == others[1] and trial.micro_batch_size > first.micro_batch_size


def _setting(recipe: Recipe, trial: Trial) -> Setting:
    kept = {"global_batch_tokens": recipe.tokens_per_step} if recipe.global_batch_tokens is None else {}
    knobs = {**trial.knobs, **(kept if trial.micro_batch_size != recipe.micro_batch_size else {})}
    knobs = {name: value for name, value in knobs.items() if getattr(recipe, name, None) != value}
    return Setting(knobs, trial.memory_bytes, command_of(turned(recipe, knobs), None, way="train"))


def _with_same_update(recipe: Recipe) -> Recipe:
    """The recipe with its global batch fixed, so that other micro-batches leave the update as it is."""
    if recipe.global_batch_tokens is not None:
        return recipe
    return turned(recipe, {"global_batch_tokens": recipe.tokens_per_step})


def _of_largest_sample(recipe: Recipe) -> Recipe | None:
    """The recipe on copies of its largest sample. None if its data has no samples to compare."""
    data: Any = build_data(recipe)
    if not has_samples(data):
        return None
    samples = (data[number] for number in range(min(len(data), _MOST_READ)))
    largest = max(samples, key=lambda sample: sum(each.numel() for each in tensors_in(sample)), default=None)
    return dataclasses.replace(recipe, target="", data=lambda: cast(Any, _Copies(largest, len(data))))


class _Copies(Dataset[Any]):
    """One sample, many times."""

    draws_randomness = False

    def __init__(self, sample: Any, count: int) -> None:
        self._sample, self._count = sample, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Any:
        return self._sample
