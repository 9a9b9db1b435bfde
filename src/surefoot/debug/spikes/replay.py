"""replay: takes a step of a run again with one thing changed at a time, to say why its loss jumped or became NaN."""

from __future__ import annotations

from surefoot.debug.spikes.attribute import Attributing
from surefoot.debug.spikes.find import symptom_at
from surefoot.errors import RunError
from surefoot.randomness import kept
from surefoot.recipe.recipe import Recipe
from surefoot.records.run import read_run
from surefoot.records.spike import Attribution
from surefoot.techniques.deterministic import applied
from surefoot.training.replay import Replay, in_one_process
from surefoot.training.trust import recipe_of
from surefoot.world.world import RealWorld


def replay(
    path: str, recipe: str | Recipe | None = None, *, step: int | None = None, trust_run: bool = False
) -> Attribution:
    """Why a step of a run stands out: its samples, a learning rate, a gradient, or the precision.

    Without `step`, it is the step of the first NaN, or else that of the largest spike. It is replayed from the newest
    checkpoint at least eight steps before it, or from step 0. Nothing is written into the run.
    """
    run = read_run(path)
    rows = run.rows()
    if not rows:
        raise RunError(f"{path} has no log rows, so no step stands out")
    symptom = symptom_at(rows, step, scaled=run.settings.get("precision") == "16-mixed")
    if symptom is None:
        return Attribution(path, len(rows), None)
    world = RealWorld()
    if world.ranks > 1:
        raise RunError("replay runs in one process; start it without torchrun")
    loaded = in_one_process(run, recipe_of(run, path, recipe, trust_run=trust_run))
    loaded.refuse_own_step("replay")
    with applied(loaded), kept(), world:
        return Attributing(Replay(run, loaded, world), symptom).attribution()
