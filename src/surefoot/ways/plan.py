"""plan: predicts the cost of a recipe's step by running it on tensors that have no memory."""

import time
from collections.abc import Callable
from typing import Any

from torch.nn import Module

from surefoot.errors import RecipeError
from surefoot.planning.recipe_plan import plan_recipe
from surefoot.recipe.bare import recipe_of
from surefoot.recipe.recipe import Recipe
from surefoot.records.plan import Plan


def plan(
    recipe: Recipe | Module | Callable[[], Module],
    batch: Any = None,
    *,
    on: str | None = None,
    reuse: bool = True,
    measure: bool = False,
    snapshot: str | None = None,
    resume: bool = True,
    loader: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Plan:
    """Runs two symbolic steps: the first creates the optimizer state, the second stands for all others.

    Instead of a recipe you can give a module, or a function that builds one, and a `batch`: see `recipe_of`.
    `on` names the target: `h100-sxm`, or `8xh100-sxm` for one of 8 ranks, or `4xcpu`; the default is this machine's
    CPU. `here` is that CPU with the speeds that `surefoot hardware measure` found.
    With `measure`, surefoot times each distinct operator call on this machine with `clock`, and the plan says how long
    a step takes here.
    Of many repeated blocks it runs only a few, if it can prove that the result is the same; `reuse=False` runs all.
    `resume=False` leaves out what a resume takes, for which the model is built once more.
    With `loader`, a plan with a time also reads some batches: what the loader gives here.
    `snapshot` names a file for all allocations, which https://pytorch.org/memory_viz can open.
    """
    return plan_recipe(
        _recipe(recipe, batch),
        on=on,
        reuse=reuse,
        measure=measure,
        snapshot=snapshot,
        resume=resume,
        loader=loader,
        clock=clock,
    )


def _recipe(given: Recipe | Module | Callable[[], Module], batch: Any) -> Recipe:
    if isinstance(given, Recipe):
        if batch is not None:
            raise RecipeError("a recipe brings its own data: leave out the batch")
        return given
    if batch is None:
        raise RecipeError("plan needs a recipe, or a module and a batch: surefoot.plan(module, batch)")
    return recipe_of(given, batch)
