"""plan: what a recipe's step will take, found by running it on tensors that have no memory."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import Embedding

from surefoot.costs.caching_allocator import Follower
from surefoot.costs.conventions import CONVENTIONS, flops_per_token
from surefoot.data.batches import batches_of
from surefoot.kernels import Kernels
from surefoot.meters.books import Books
from surefoot.recipe import Recipe
from surefoot.records.plan import Plan
from surefoot.records.usage import Usage
from surefoot.step import Step
from surefoot.trees import map_tensors, tensors_in
from surefoot.world import FakeWorld


def plan(recipe: Recipe) -> Plan:
    """Runs two symbolic steps: the first makes the optimizer's state, the second is what all others are like."""
    kernels = Kernels()
    world = FakeWorld(kernels=kernels, density=recipe.density)
    batches = batches_of(recipe)

    def loaded() -> Iterator[Any]:
        return books.seen(world.take(batches) for _ in range(recipe.micro_batches()))

    reserving = {name: Follower(expandable_segments=name == "expandable") for name in ("classic", "expandable")}
    with torch.random.fork_rng(), world, Books(kernels=kernels) as books:
        books.memory.followers += reserving.values()
        step = Step(recipe, world)
        init = books.close()
        books.phases.find(step.model)
        parameters = step.parameter_count
        step(loaded())
        step(loaded())
        flops_per_token = _flops_per_token(recipe, step, books)
        reserved = {name: follower.allocator.reserved_bytes for name, follower in reserving.items()}
        books.memory.followers.clear()
        assumed, choices = dict(world.assumptions), step.choices()
        books.close()  # the gradients of the last step are gone by now
        step.evaluate(loaded())
        evaluate = books.close()
        saved = _saved(step)
        state_bytes = sum(each.untyped_storage().nbytes() for each in _once(tensors_in(saved)))
        del step
        books.close()
        resume = _resumed(recipe, world, books, saved)
    too_large = sum(kernels.too_large.values())
    return Plan(
        recipe=recipe.name,
        about=recipe.about,
        knobs=dict(recipe.knobs),
        parameters=parameters,
        tokens_per_step=recipe.tokens_per_step,
        micro_batches=recipe.micro_batches(),
        steps=recipe.steps(),
        first=books.steps[0],
        steady=books.steps[1],
        init=init,
        evaluate=evaluate,
        resume=resume,
        state_bytes=state_bytes,
        reserved_bytes=reserved,
        flops_per_token=flops_per_token,
        assumptions=(
            *(f"{note} ({times} times)" for note, times in assumed.items()),
            *([f"no workspace inside {too_large} kernels too large to try"] if too_large else []),
        ),
        choices=(*choices, *_compiled(recipe)),
    )


def _flops_per_token(recipe: Recipe, step: Step, books: Books) -> dict[str, float]:
    """This plan's own count, and the conventions; those that need attention only where attention was seen."""
    tally = books.steps[-1].tally
    counted = (tally.total("flops") - tally.total("flops/recompute")) / recipe.tokens_per_step
    attention, modules = books.flops.attention, step.model.modules()
    shape = {
        "parameters": step.parameter_count,
        "embedding": max((each.weight.numel() for each in modules if isinstance(each, Embedding)), default=0),
        "attention_width": sum(width for width, _ in attention) // recipe.micro_batches(),
        "context": max((keys for _, keys in attention), default=0),
    }
    names = [name for name, rule in CONVENTIONS.items() if attention or not rule.attention]
    return {"counted": counted, **{name: flops_per_token(name, **shape) for name in names}}


def _compiled(recipe: Recipe) -> list[str]:
    """What a plan says of a step that will be compiled."""
    if recipe.compile == "off":
        return []
    again = recipe.compile == "whole" and recipe.recompute != "none"
    more = "; recomputing, a model compiled whole has taken an eighth more, with compiled blocks not" if again else ""
    return [f"compile={recipe.compile}: this is the step as it was written, see docs/plan.md{more}"]


def _saved(step: Step) -> dict[str, Any]:
    """The state of a step as it comes from a file: every tensor once more, tied ones once."""
    copies: dict[int, torch.Tensor] = {}

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        return copies.setdefault(id(tensor.untyped_storage()), torch.empty_like(tensor))

    return map_tensors(copy, {"model": step.model.state_dict(), "optimizer": step.optimizer.state_dict()})


def _resumed(recipe: Recipe, world: FakeWorld, books: Books, saved: dict[str, Any]) -> Usage:
    """Builds a step anew and gives it a saved state, which is held beside it until it has been taken over."""
    step = Step(recipe, world)
    step.model.load_state_dict(saved["model"])
    step.optimizer.load_state_dict(saved["optimizer"])
    return books.close()


def _once(tensors: Iterator[torch.Tensor]) -> list[torch.Tensor]:
    return list({id(tensor.untyped_storage()): tensor for tensor in tensors}.values())
