"""Opens a run: builds its step, data and observers, and puts them where the run stands, at step 0 or further on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from surefoot.checkpoint.outline import take_apart, to_json
from surefoot.checkpoint.state import restore
from surefoot.checkpoint.store import Checkpoints
from surefoot.checks.run_throttle import RunThrottle
from surefoot.errors import CheckpointError, RecipeError
from surefoot.meters.steady_traffic import SteadyTraffic
from surefoot.planning.mfu import peak_flops, step_flops
from surefoot.randomness import set_generators
from surefoot.recipe.recipe import Recipe
from surefoot.records.log import LogRow
from surefoot.records.run import Run
from surefoot.records.tally import Tally
from surefoot.step import Step
from surefoot.techniques.layers import Layers
from surefoot.training.current_run import CurrentRun
from surefoot.training.init_from import Taken, with_first_weights
from surefoot.training.memory_guard import MemoryGuard
from surefoot.training.plain_state import PlainState
from surefoot.training.reactions.run_findings import RunFindings
from surefoot.training.resume import refuse_lost_checkpoints, refuse_lost_rows, refuse_other_data
from surefoot.training.run_data import RunData
from surefoot.world.world import World


@dataclass(frozen=True)
class Standing:
    """Where a run stands before its next step."""

    run: Run
    taken: list[LogRow]
    """The rows of the steps up to the checkpoint."""
    replayed: dict[int, LogRow]
    """The rows of later steps, which are repeated and must come out the same."""
    place: str
    """The checkpoint's name, or `step 0`."""


@dataclass(frozen=True)
class Opened:
    """A run before its next step on one rank: what takes the step, what feeds it, what watches it, where it stands."""

    step: Step
    data: RunData
    findings: RunFindings
    traffic: SteadyTraffic
    layers: Layers | None
    """None if no step's layers are measured."""
    standing: Standing
    filled: Taken | None
    """What a model that begins with the weights of `init_from` took from there, at the first start of the run."""


def open_run(
    recipe: Recipe, current: CurrentRun, world: World, checkpoints: Checkpoints, *, accepted: bool, memory: MemoryGuard
) -> Opened:
    """Builds everything that takes a step, and restores it. With many ranks or compiled code, fewer observers are on.

    The observers are built before a checkpoint is restored: lost state is what differs from a new model.
    """
    filled = list[Taken]()
    resumes = next(iter(checkpoints), None) is not None
    step = current.step = Step(recipe if resumes else with_first_weights(recipe, filled), world)
    refuse_unsavable_schedule(step)
    data = RunData(step)
    throttled = not (step.compiled or step.layout.shards or step.is_own)
    throttle = RunThrottle(step.model, step.optimizer, on=throttled)
    traffic = SteadyTraffic(step.model, step.mesh, on=world.ranks > 1 and not step.compiled)
    plain = PlainState(step.model) if world.ranks == 1 and not step.compiled else None
    findings = RunFindings(step, throttle, plain, current, memory)
    memory.know(step, throttle.failsafe)
    layers = step.measure_layers()
    standing = restored(current, step, data, checkpoints, accepted=accepted)
    current.run = standing.run
    return Opened(step, data, findings, traffic, layers, standing, next(iter(filled), None))


def restored(current: CurrentRun, step: Step, data: RunData, checkpoints: Checkpoints, *, accepted: bool) -> Standing:
    """Brings step and data to the newest checkpoint that can be trusted, or to step 0.

    Raises if checkpoints, log rows or data of the run are missing or changed. `accepted` allows the first two.
    """
    run, checkpoint = current.run, checkpoints.newest()
    for path, reason in checkpoints.rejected:
        current.event("checkpoint-rejected", f"{path.name}: {reason}")
    rows, saved_step = step.world.from_first(run.rows), 0 if checkpoint is None else checkpoint.step
    if not accepted:
        refuse_lost_checkpoints(run, left=saved_step)
        step.world.from_first(partial(refuse_lost_rows, run, upto=saved_step))
    saved = None if checkpoint is None else restore(step, checkpoint)
    if saved is not None:
        set_generators(saved["generators"])
    data.open(run)
    run = _with_identities(run, step, data)
    taken = [row for row in rows if row.step <= step.number]
    replayed = {row.step: row for row in rows if row.step > step.number and row.attempt == run.attempt}
    run = replace(_described(run.before_its_steps().after(taken), step), saved_step=saved_step)
    data.put_back(saved)
    return Standing(run, taken, replayed, checkpoint.path.name if checkpoint else "step 0")


def refuse_unsavable_schedule(step: Step) -> None:
    """Raises if a scheduler of the recipe's own holds what a checkpoint cannot: the run could not be resumed."""
    try:
        if step.recipe.schedules_itself:
            to_json(take_apart(step.scheduler.state_dict())[0])
    except CheckpointError as error:
        raise RecipeError(f"{step.recipe.name}: the schedule cannot be saved: {error}") from error


def _with_identities(run: Run, step: Step, data: RunData) -> Run:
    """The run with the identity of its data sets. Raises if a data set is not the one that the run began with."""
    found, evaluation = step.world.from_first(partial(data.identities, run))
    refuse_other_data(run.data_identity, found, "data")
    if evaluation is not None:
        refuse_other_data(run.evaluation_identity, evaluation, "evaluation data")
    return replace(run, data_identity=found, evaluation_identity=evaluation or run.evaluation_identity)


def _described(run: Run, step: Step) -> Run:
    """The run with the facts of this process: model size, device, choices and FLOPs."""
    peak = peak_flops(step.device, step.recipe.precision)
    return replace(
        run,
        parameters=step.parameter_count,
        device=str(step.device),
        choices=step.choices(),
        memory_bytes={},
        traffic=Tally(),
        peak_flops=None if peak is None else peak * step.world.ranks,
        step_flops=None if peak is None else step.world.from_first(partial(_step_flops, step.recipe)),
    )


def _step_flops(recipe: Recipe) -> float:
    """The FLOPs of a step on all ranks together, counted as if one rank computed it alone."""
    return step_flops(replace(recipe, dp_replicate=1, dp_shard=1, cp=1, cp_by="keys", tp=1))
