"""Trials: settings of a recipe. Each is planned once and carries the command that plans it again."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence

from surefoot.costs.budget import limits_of
from surefoot.data.batches import batches_of
from surefoot.errors import BudgetError, RecipeError
from surefoot.planning.recipe_plan import plan_recipe
from surefoot.randomness import kept
from surefoot.recipe.build import build_data, build_model
from surefoot.recipe.knobs import defaults_of
from surefoot.recipe.load import SETTINGS, find_function, make_recipe
from surefoot.recipe.recipe import Knob, Recipe
from surefoot.records.plan import Plan
from surefoot.records.search import Budget, Trial
from surefoot.step import Step
from surefoot.techniques.mesh import layout_of, with_global_batch
from surefoot.techniques.recompute import blocks_of
from surefoot.units import bytes_text, seconds_text
from surefoot.world.gpu.target import CPU, targets
from surefoot.world.world import FakeWorld

Knobs = Mapping[str, Knob]
NCCL_BYTES = 2 * 688 * 2**20
"""Two communicators, one of shards and one of all ranks. 688 MB each on 4 A100: https://github.com/NVIDIA/nccl/issues/964"""
FRAGMENTED = 0.02
"""Plans reserve up to 1% less than the published runs on many GPUs that they are held against did, in one case 4%
(docs/measured/public-runs.md)."""
MOST_SAMPLES = 2**16
"""The largest micro-batch to try if the data has no length."""


class Trials:
    """All planned settings, in the order of planning."""

    def __init__(self, recipe: Recipe, budget: Budget) -> None:
        self.recipe, self.budget = recipe, budget
        self.made: dict[str, Trial] = {}
        self.plans: dict[str, Plan] = {}
        self._blocks: dict[tuple[tuple[str, Knob], ...], list[str]] = {}

    def plan(self, on: str | None, knobs: Knobs) -> Trial:
        """The trial of a setting. It is planned only the first time."""
        recipe = turned(self.recipe, knobs)
        command = command_of(recipe, on)
        if command not in self.made:
            planned = self.plans[command] = plan_recipe(recipe, on=on, resume=False)
            self.made[command] = _trial(recipe, command, on or CPU, knobs, planned, self.budget)
        return self.made[command]

    def booked(self, trial: Trial, *accounts: str) -> float:
        """The bytes in these memory accounts at the peak of a trial's steady step."""
        tally = self.plans[trial.command].steady.tally
        return sum(tally.total(f"memory/{account}") for account in accounts)

    def waiting(self, trial: Trial) -> float:
        """The share of a step spent waiting for other ranks."""
        time = self.plans[trial.command].time
        return time.bounds.get("communication", 0.0) / time.seconds if time else 0.0

    def cost_of_offload(self, plain: Trial, offloaded: Trial) -> str:
        """What a setting costs that was taken only because nothing fits without it."""
        plan = self.plans[offloaded.command]
        held = bytes_text(plan.host.rank_bytes if plan.host else 0)
        said = f"offload=activations was tried last, since nothing else that was planned fits: {held} of each device "
        said += "wait in host memory"
        if plan.time is None or plain.step_seconds is None:
            return said
        moved = plan.time.bounds.get("transfers", 0.0)
        return (
            f"{said}, and a step of {seconds_text(plan.time.seconds)} transfers for {seconds_text(moved)} of it; "
            f"without, it would take {seconds_text(plain.step_seconds)}"
        )

    def limit(self, on: str | None) -> int:
        """The bytes that a step may use on one device."""
        _, gpu = targets(on or CPU)
        given = (self.budget.memory_bytes, gpu.memory_bytes - margin(on) if gpu else None)
        if given == (None, None):
            raise BudgetError("fit into how much memory? name GPUs with --on, or a limit with --budget memory=76GiB")
        return min(each for each in given if each is not None)

    def micro_batch_sizes(self, on: str | None, knobs: Knobs) -> Sequence[int]:
        """The possible sizes: up to all the data, or the divisors of a rank's share of the global batch."""
        recipe = turned(self.recipe, knobs)
        ranks = layout_of(recipe, ranks=targets(on or CPU)[0]).data_ranks
        if recipe.global_batch_tokens is None:
            data = build_data(recipe)
            samples = len(data) if hasattr(data, "__len__") else MOST_SAMPLES
            return range(1, max(1, samples // ranks) + 1)
        samples = dataclasses.replace(recipe, micro_batch_size=1).micro_batches(ranks)
        return [size for size in range(1, samples + 1) if samples % size == 0]

    def kept_in_blocks(self, trial: Trial) -> float:
        """The bytes of a trial's activations in blocks. Recomputing would free all but the blocks' inputs."""
        blocks = tuple(f"memory/activations/{name}" for name in self.blocks(trial.knobs))
        tally = self.plans[trial.command].steady.tally
        return sum(each.amount for each in tally.accounts if each.name.startswith(blocks))

    def blocks(self, knobs: Knobs) -> list[str]:
        """The names of the model's blocks, which can be recomputed."""
        shape = tuple(item for item in knobs.items() if item[0] not in SETTINGS)
        if shape not in self._blocks:
            recipe = turned(self.recipe, dict(shape))
            with kept(), FakeWorld():
                self._blocks[shape] = [name for name, _ in blocks_of(build_model(recipe))]
        return self._blocks[shape]

    def recomputations(self, on: str | None, knobs: Knobs) -> list[int]:
        """The bytes that all blocks keep in each Pareto-optimal way to recompute, fewest first.

        If the budgets of several ways read alike, only the way that keeps the most counts.
        """
        ranks, gpu = targets(on or CPU)
        recipe = turned(self.recipe, {**knobs, "recompute": "budget=1"})
        recipe = with_global_batch(recipe, layout_of(recipe, ranks=ranks))
        with kept(), FakeWorld(ranks=ranks, density=recipe.density, gpu=gpu) as world:
            step = Step(recipe, world)
            batches = batches_of(recipe, rank=step.layout.data_rank, ranks=step.layout.data_ranks)
            step.loss_of(0, world.take(batches))
        settled = step.recomputation.settled
        return sorted({budget_text(each): each for each in (settled.kept_bytes if settled else ())}.values())


def margin(on: str | None) -> int:
    """The bytes of a GPU that a search keeps free: for NCCL, which torch's allocator does not see, and for blocks that
    the allocator cannot join."""
    ranks, gpu = targets(on or CPU)
    if gpu is None:
        return 0
    return round(FRAGMENTED * gpu.memory_bytes) + (NCCL_BYTES if ranks > 1 else 0)


def budget_text(kept_bytes: int) -> str:
    """The budget setting that lets blocks keep this many bytes, rounded up to a hundredth of a MiB."""
    return f"budget={math.ceil(100 * kept_bytes / 2**20) / 100:.2f}MiB"


def turned(recipe: Recipe, knobs: Knobs) -> Recipe:
    """The recipe with some knobs set. If it was loaded by name, it is loaded again, as a command line would."""
    if recipe.target:
        return make_recipe(recipe.target, {**recipe.knobs, **knobs})
    fields = {field.name for field in dataclasses.fields(Recipe)}
    if unknown := [name for name in knobs if name not in fields]:
        raise RecipeError(f"{recipe.name} was not loaded by name, so it has no knob {', '.join(unknown)} to set")
    return dataclasses.replace(recipe, **knobs, knobs={**recipe.knobs, **knobs})  # type: ignore[arg-type]


def command_of(recipe: Recipe, on: str | None, *, way: str = "plan") -> str:
    """The command that plans a recipe, or runs it another way. If it was not loaded by name, only its knobs."""
    usual = defaults_of(find_function(recipe.target)) if recipe.target else {}
    words = [f"{name}={value}" for name, value in recipe.knobs.items() if name not in usual or usual[name] != value]
    start = ["surefoot", way, recipe.target] if recipe.target else []
    return shlex.join([*start, *words, *(["--on", on] if on else [])])


def _trial(recipe: Recipe, command: str, on: str, knobs: Knobs, planned: Plan, budget: Budget) -> Trial:
    limits = limits_of(planned, budget, margin_bytes=margin(on))
    cost = planned.cost
    return Trial(
        command=command,
        on=on,
        knobs=dict(knobs),
        parameters=planned.parameters,
        devices=planned.ranks,
        micro_batch_size=recipe.micro_batch_size,
        micro_batches=planned.micro_batches,
        tokens_per_step=planned.tokens_per_step,
        memory_bytes=next((round(limit.amount) for limit in limits if limit.name == "memory"), planned.live_bytes),
        flops_per_token=planned.ranks * planned.steady.tally.total("flops") / planned.tokens_per_step,
        limits=limits,
        layout=planned.layout,
        step_seconds=planned.time.seconds if planned.time else None,
        days=cost.days if cost else None,
        dollars=cost.dollars if cost else None,
        dollars_per_hour=cost.dollars_per_hour if cost else None,
        interval=planned.time.interval if planned.time else None,
    )
