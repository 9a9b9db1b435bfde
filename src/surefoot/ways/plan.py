"""plan: what a recipe's step will take, found by running it on tensors that have no memory."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import Embedding

from surefoot.costs.caching_allocator import Follower
from surefoot.costs.conventions import CONVENTIONS, flops_per_token
from surefoot.data.batches import batches_of
from surefoot.gpu.target import CONTEXT_BYTES, Gpu, gpu
from surefoot.gpu.workspaces import GpuKernels
from surefoot.kernels import Kernels
from surefoot.meters.books import Books
from surefoot.randomness import kept
from surefoot.recipe import Recipe
from surefoot.records.plan import Fit, Plan
from surefoot.records.usage import Usage
from surefoot.step import Step
from surefoot.trees import map_tensors, tensors_in
from surefoot.world import FakeWorld


def plan(recipe: Recipe, *, on: str | None = None) -> Plan:
    """Runs two symbolic steps: the first makes the optimizer's state, the second is what all others are like.

    `on` names the GPU that the step is planned for, such as `h100-sxm`; without it, the plan is for this machine's CPU.
    """
    target = None if on is None else gpu(on)
    world = FakeWorld(density=recipe.density, gpu=target)
    kernels = world.kernels
    batches = batches_of(recipe)

    def loaded() -> Iterator[Any]:
        return books.seen(world.take(batches) for _ in range(recipe.micro_batches()))

    reserving = {name: Follower(expandable_segments=name == "expandable") for name in ("classic", "expandable")}
    with kept(), world, Books(kernels=kernels) as books:
        books.memory.followers += reserving.values()
        step = Step(recipe, world)
        init = books.close()
        books.phases.find(step.model)
        parameters = step.parameter_count
        step(loaded())
        step(loaded())
        flops_per_token = _flops_per_token(recipe, step, books)
        reserved = {name: follower.allocator.reserved_bytes for name, follower in reserving.items()}
        allocated = {name: follower.allocator.peak_allocated_bytes for name, follower in reserving.items()}
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
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        fit=None if target is None else _fit(target, reserved),
        flops_per_token=flops_per_token,
        assumptions=(
            *(target.policies if target else ()),
            *(f"{note} ({times} times)" for note, times in assumed.items()),
            *_missing(kernels),
        ),
        choices=(*choices, *_compiled(recipe)),
    )


def _fit(target: Gpu, reserved: dict[str, int]) -> Fit:
    memory = {"memory_bytes": target.memory_bytes, "context_bytes": CONTEXT_BYTES}
    return Fit.of(target.name, **memory, reserved_bytes=reserved)


def _missing(kernels: Kernels | GpuKernels) -> Iterator[str]:
    """What a plan leaves out, since nothing says how much it is."""
    if isinstance(kernels, GpuKernels):
        if kernels.unknown:
            yield f"no workspace inside {', '.join(sorted(kernels.unknown))}: the library chooses it on the GPU"
    elif kernels.too_large:
        yield f"no workspace inside {sum(kernels.too_large.values())} kernels too large to try"


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
    return [
        f"compile={recipe.compile}: this is the step before it is compiled, an upper bound: the compiler fuses "
        "operators and keeps fewer activations"
    ]


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
