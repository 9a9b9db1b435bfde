"""Checks that every repeated block behaves, and is sharded and recomputed, like the few that were traced.

A forward of all blocks, before ranks share the model, must match the prediction from the few, entry by entry. So must
the treatment of each part: how it is cut, whether it is sharded and recomputed on its own, and its optimizer group.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from torch import nn

from surefoot.costs import unroll
from surefoot.costs.unroll import Irregular, unrolled
from surefoot.meters.books import Books
from surefoot.meters.journal import Entry, Journal, filled
from surefoot.planning.fake_step import Tracing
from surefoot.planning.short_models import FEW, Copies
from surefoot.randomness import seed_all
from surefoot.recipe.recipe import Recipe
from surefoot.recipe.returned import checked_loss
from surefoot.step import Step
from surefoot.techniques import fsdp, groups, precision, recompute


def prove_forward(tracing: Tracing, copies: Copies) -> None:
    """Raises if the forward of all blocks differs from the prediction from a few."""
    few = [_forward(tracing, *copies.short(times)) for times in FEW]
    _refuse_other(_forward(tracing, *copies.whole()), unrolled(few, copies.more), "the forward of all blocks differs")


def _forward(tracing: Tracing, model: nn.Module, books: Books, journal: Journal) -> list[Entry]:
    """The journal of a forward and its loss, before ranks share the model, and of the memory freed after it."""
    recipe = tracing.recipe
    assert recipe.loss is not None  # blocks of a step of the recipe's own are never left out
    with books:
        books.phases.find(model)
        batch = next(next(tracing.loaded(books)))  # held until the end, as a step holds it
        seed_all(recipe.seed)
        with precision.autocast(recipe.precision, tracing.world.device):
            kept = checked_loss(recipe.loss(model, precision.inputs_in(recipe.precision, batch)), recipe.name)
        del kept
        return journal.finished()


def plan_entries(copies: Copies, recipe: Recipe, model: nn.Module) -> list[Entry]:
    """How tensor parallelism cuts the parts of a model, one entry each."""
    plan = recipe.tensor_plan(model) if recipe.tensor_plan is not None else {}
    return [copies.entry("plan", name, type(style), str(vars(style))) for name, style in plan.items()]


def part_entries(copies: Copies, step: Step) -> Iterator[Entry]:
    """How each part of a step's model is cut, sharded, recomputed and grouped, one entry each."""
    names = {parameter: name for name, parameter in step.model.named_parameters()}
    if step.cutting is not None:
        yield from (copies.entry("cut", name) for name in names.values() if name in step.cutting.names)
    if step.sharding is not None:
        yield from (copies.entry("sharded", name) for name in step.sharding.names)
    yield from (copies.entry("recomputed", name) for name in step.recomputation.recomputed())
    for number, group in enumerate(step.optimizer.param_groups):
        yield from (copies.entry("group", names.get(each, ""), number) for each in group["params"])


def whole_step(copies: Copies, short: Step, parts: Sequence[list[Entry]]) -> Step:
    """A step of all blocks that can describe itself. Its model is not shared among ranks.

    `short` is a step with few blocks. `parts` are the entries of `part_entries` for each such step.
    """
    recipe, model, step = short.recipe, copies.model, copy.copy(short)
    predicted, planned = unrolled(parts, copies.more), plan_entries(copies, recipe, model)
    step.model, step.recomputation = model, recompute.apply(model, recipe, step.world)
    step.optimizer = groups.optimizer_of(model, recipe)
    if step.sharding is not None:
        step.sharding = dataclasses.replace(step.sharding, names=fsdp.chosen(model, recipe)[0])
    if step.cutting is not None:
        cut = (filled(words[1], numbers) for words, _, numbers in predicted if words[0] == "cut")
        step.cutting = dataclasses.replace(step.cutting, names=frozenset(cut))
    _refuse_other([*planned, *part_entries(copies, step)], predicted, "the treatment of a part differs")
    return step


def _refuse_other(found: Sequence[unroll.Entry], predicted: Sequence[unroll.Entry], what: str) -> None:
    for at, (one, other) in enumerate(zip_longest(found, predicted)):
        if one != other:
            raise Irregular(f"{what} from entry {at} on: {(one or other)[0]}")
