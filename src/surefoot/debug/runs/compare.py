"""compare: finds the first step at which two runs differ, replays it, and names what differed first in it."""

from __future__ import annotations

from typing import Any

from surefoot.debug.runs.replayed_pair import parted
from surefoot.errors import RunError
from surefoot.randomness import kept
from surefoot.recipe.recipe import SETTINGS, Recipe
from surefoot.records.compared import Compared, FirstStep, Replayed, first_step, tolerance_for, unlike
from surefoot.records.run import Run, read_run
from surefoot.techniques.deterministic import applied
from surefoot.training.replay import Replay, in_one_process
from surefoot.training.trust import recipe_of
from surefoot.world.world import RealWorld

_ROUNDING = {name for name, each in SETTINGS.items() if each.changes == "rounding"}


def compare(
    first: str,
    second: str,
    recipe: str | Recipe | tuple[Recipe, Recipe] | None = None,
    *,
    trust_run: bool = False,
    tolerance: float | None = None,
    replay: bool = True,
) -> Compared:
    """Whether two runs agree, and if not, where they part.

    Runs must agree bit for bit, unless their layout, torch, threads, device or cut into micro-batches differ. Then
    losses and gradient norms may differ by a share of 1e-4, with less than float32 by 1e-2. `tolerance` sets this.

    The step where they part is replayed in this process from the newest checkpoint at which both had the same state,
    which takes as many steps as lie between. `recipe` is that of both runs, or a pair; built-in recipes need none.
    """
    one, other = read_run(first), read_run(second)
    _refuse_other_shapes(one, other)
    allowed, why = (tolerance, "asked for") if tolerance is not None else tolerance_for(one, other, settings=_ROUNDING)
    same_cut = one.settings.get("micro_batch_size") == other.settings.get("micro_batch_size")
    steps, largest, found = first_step(one.rows(), other.rows(), allowed, same_cut=same_cut)
    if not steps:
        raise RunError(f"{first} and {second} have no step in common: at least one of them has no log rows yet")
    replayed, reason = None, ""
    if found is not None and replay:
        replayed, reason = _tried(one, other, recipe, found, trust_run=trust_run)
    return Compared(first, second, steps, allowed, why, largest, unlike(one, other), found, replayed, reason)


def _refuse_other_shapes(one: Run, other: Run) -> None:
    """Raises if no step of one run can be that of the other."""
    sizes = [run.parameters for run in (one, other)]
    tokens = [next((row.tokens for row in run.rows()), None) for run in (one, other)]
    if all(sizes) and sizes[0] != sizes[1]:
        raise RunError(
            f"{one.path} trains {sizes[0]:,} parameters and {other.path} {sizes[1]:,}: models of other shapes have no "
            "values to compare; `surefoot report` shows both runs side by side"
        )
    if None not in tokens and tokens[0] != tokens[1]:
        raise RunError(
            f"a step of {one.path} takes {tokens[0]:,} {one.unit}s and one of {other.path} {tokens[1]:,}: steps of "
            "other sizes cannot agree; `surefoot report` shows both runs side by side"
        )


def _tried(one: Run, other: Run, recipe: Any, found: FirstStep, *, trust_run: bool) -> tuple[Replayed | None, str]:
    """The replayed step, or why it could not be replayed. Logs were compared without any code of the runs."""
    recipes = recipe if isinstance(recipe, tuple) else (recipe, recipe)
    try:
        made = [
            in_one_process(run, recipe_of(run, run.path, each, trust_run=trust_run))
            for run, each in zip((one, other), recipes, strict=True)
        ]
    except RunError as error:
        return None, str(error)
    world = RealWorld()
    if world.ranks > 1:
        raise RunError("compare replays in one process; start it without torchrun")
    with applied(made[0]), applied(made[1]), kept(), world:
        return parted((Replay(one, made[0], world), Replay(other, made[1], world)), found.step), ""
