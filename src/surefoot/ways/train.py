"""train: trains a recipe on one rank or many, in a run directory that survives a kill at any moment."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from surefoot.checkpoint.elsewhere import place_checkpoints
from surefoot.checkpoint.interval import Interval
from surefoot.checkpoint.lock import Lock
from surefoot.checkpoint.mirror import Mirror
from surefoot.debug.errors.nonfinite import first_nonfinite
from surefoot.debug.memory.training_memory import TrainingMemory
from surefoot.errors import RecipeError, RunError
from surefoot.randomness import kept
from surefoot.recipe.recipe import Recipe
from surefoot.records.plan import Plan
from surefoot.records.run import Run
from surefoot.techniques.deterministic import as_asked
from surefoot.techniques.mesh import layout_of, with_global_batch
from surefoot.training.end import reopened
from surefoot.training.guards.signals import StopRequests
from surefoot.training.loop import trained
from surefoot.training.reactions.step_log import Tell
from surefoot.training.resume import changes_since, folder_for, new_run, old_run
from surefoot.training.run_writer import RunWriter
from surefoot.training.weights import damage_of, to_repair
from surefoot.world.world import RealWorld


@as_asked
def train(
    recipe: Recipe,
    *,
    path: str | None = None,
    resume: Literal["auto", "never"] = "auto",
    accept_change: bool = False,
    plan: Plan | None = None,
    tell: Tell | None = None,
    memory_limit: int | None = None,
) -> Run:
    """Trains to `max_steps`, `max_tokens` or `max_epochs` and returns the run. `tell` is called after every step.

    A `plan` is kept with the run, so that its ledger can compare plan and run.

    An unfinished run of the same recipe in this directory is resumed, on any number of ranks. SIGTERM and SIGINT, to
    any rank, end the run after the current step: it saves a checkpoint, and its status is `interrupted`.

    With `memory_limit`, the operation that would take more bytes on a rank raises `torch.OutOfMemoryError`. The run
    directory then says what held the memory.
    """
    if recipe.steps() is None:
        raise RecipeError(f"{recipe.name} does not say when to stop; set max_steps, max_tokens or max_epochs")
    if recipe.evaluate_every and recipe.evaluation is None:
        raise RecipeError(
            f"{recipe.name} has evaluate_every={recipe.evaluate_every} and no evaluation data; set both or neither"
        )
    every = None if recipe.save_every is None else Interval.read(recipe.save_every)
    world = RealWorld()
    layout = layout_of(recipe, rank=world.rank, ranks=world.ranks)
    recipe = with_global_batch(recipe, layout)
    recipe.micro_batches(layout.data_ranks)
    mirror = Mirror(recipe.mirror, keep_last=recipe.keep_last, on=world.rank == 0)

    def there(folder: Path) -> Run:
        return old_run(recipe, folder, accept_change=accept_change, layout=str(layout))

    def differences(run: Run) -> list[str]:
        return [] if accept_change else list(changes_since(run, recipe))

    def opened() -> Run:
        folder = folder_for(recipe, path)
        held.enter_context(Lock(folder))  # before anything is read: another start could change it meanwhile
        place_checkpoints(folder, recipe.checkpoints)
        mirror.open(folder)
        mirror.restore(differences, there, allowed=resume == "auto")
        if not (folder / "run.json").exists():
            return mirror.claim(new_run(recipe, folder, layout=str(layout)), differences)
        if resume == "never":
            raise RunError(f"{folder} already holds a run; name another directory, or use --resume auto")
        return mirror.claim(there(folder), differences)

    # The lock is released last: until the mirror has ended, no other start may write to the folder.
    with ExitStack() as held, world, StopRequests() as stop, kept(), mirror:
        run = world.from_first(opened)
        if (damaged := world.from_first(lambda: damage_of(run))) is not None:
            run = to_repair(run, damaged)
            RunWriter(run, rank=world.rank).tell_of(
                run, run.steps, "weights-damaged", f"{damaged}; surefoot makes them again from the last checkpoint"
            )
        run = reopened(run)
        if plan is not None:
            RunWriter(run, rank=world.rank).keep_plan(run, plan)
        if run.status == "finished":
            mirror.end(run)
            return run
        return trained(
            recipe,
            run,
            world,
            every=every,
            stop=stop,
            tell=tell,
            accepted=accept_change,
            mirror=mirror,
            memory=TrainingMemory(memory_limit, recipe, run, world),
            find_nonfinite=first_nonfinite,
        )
