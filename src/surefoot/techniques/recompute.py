"""Recompute (activation checkpointing): free a block's activations, and run its forward again in backward.

| `recompute`   | which blocks run again                                    | what they keep, besides their inputs     |
|---------------|-----------------------------------------------------------|------------------------------------------|
| `none`        | none                                                      |                                          |
| `full`        | all                                                       | nothing                                  |
| `selective`   | all                                                       | results of attention and convolutions,   |
|               |                                                           | and of every second matrix product       |
| `budget=0.5`  | those that `budget.py` chooses: all blocks keep at most   | nothing, or as with `selective`          |
|               | half of what `full` frees                                 |                                          |
| `budget=2GiB` | those that it chooses: all blocks keep at most 2 GiB      | nothing, or as with `selective`          |

Blocks are the repeated modules of a model. The random state is restored, so dropout drops the same elements. Running
statistics of batch norms are not updated again.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe, budget_of
from surefoot.techniques import recompute_budget
from surefoot.techniques.recompute_budget import Block, Settled
from surefoot.techniques.selective import policy
from surefoot.world.world import World

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


@dataclass
class Recomputation:
    """What a model recomputes, and why."""

    way: str
    blocks: list[Block]
    settled: Settled | None = None
    """The outcome of a budget; None before the first forward, and without a budget."""

    def recomputed(self, *ways: str) -> list[str]:
        """The names of the blocks that run again in backward, or only those recomputed in these ways."""
        return [block.name for block in self.blocks if block.module.recomputed in (ways or ("full", "selective"))]

    def explain(self) -> list[str]:
        """One sentence, or none if nothing is recomputed."""
        if self.way == "none":
            return []
        full, selective = (self._named(self.recomputed(way)) for way in ("full", "selective"))
        which = f"{full or selective or 0} of {len(self.blocks)} blocks run again in backward"
        if selective and self.way != "selective":
            which += f", {selective} selectively" if full else ", selectively"
        return [f"recompute={self.way}: {which}{f'; {self.settled.reason}' if self.settled else ''}"]

    def _named(self, names: list[str]) -> str:
        """Their number and names; empty if there are none."""
        if not names:
            return ""
        all_names = [block.name for block in self.blocks]
        start = all_names.index(names[0])
        in_a_row = len(names) > 2 and names == all_names[start : start + len(names)]
        return f"{len(names)} ({f'{names[0]} to {names[-1]}' if in_a_row else ', '.join(names)})"


def apply(
    model: nn.Module,
    recipe: Recipe,
    world: World,
    *,
    compiled: bool = False,
    sharded: MixedPrecisionPolicy | None = None,
) -> Recomputation:
    """Makes the model's blocks recompute as the recipe says. Names, class names and state stay the same.

    The whole call of a block runs again, hooks included, as in `checkpoint(block, ...)`. If blocks are compiled, only
    their forward does, so that the compiler sees it. If the model will be sharded, `sharded` gives the formats in which
    it is gathered.
    """
    way, limit = recipe.recompute, budget_of(recipe.recompute)
    if way == "none":
        return Recomputation(way, [])
    blocks = [Block(name, module) for name, module in blocks_of(model)]
    if not blocks:
        raise RecipeError(
            f"recompute={way!r} needs blocks to recompute, and {type(model).__name__} has none: blocks are "
            "modules of one class, with modules inside, in an nn.ModuleList, nn.ModuleDict or nn.Sequential"
        )
    for plain in {type(block.module) for block in blocks}:
        swapped = _recomputing(plain, "forward" if compiled else "__call__")
        for block in blocks:
            if type(block.module) is plain:
                block.module.__class__ = swapped
                block.module.recomputed = way if limit is None else "none"
    made = Recomputation(way, blocks)
    if limit is not None:
        _settle_at_first_forward(model, made, recipe, world, limit, sharded)
    return made


def _settle_at_first_forward(
    model: nn.Module,
    made: Recomputation,
    recipe: Recipe,
    world: World,
    limit: float,
    sharded: MixedPrecisionPolicy | None,
) -> None:
    """Settles a budget at the first call of the model with gradients, just before it computes."""
    cut = next((f"{name}={size}" for name, size in (("tp", recipe.tp), ("cp", recipe.cp)) if size > 1), "")
    if cut:
        raise RecipeError(f"recompute={recipe.recompute!r} does not work with {cut}; use full or selective")
    stand_in = (
        recompute_budget.Whole(model) if sharded is None else recompute_budget.Unsharded(model, sharded.param_dtype)
    )

    def settle(_: nn.Module, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled():
            hook.remove()
            made.settled = recompute_budget.settle(stand_in, made.blocks, (args, kwargs), limit, world, recipe.density)

    hook = model.register_forward_pre_hook(settle, with_kwargs=True)


def blocks_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The outermost repeated modules: children of one class in a list, dict or sequence that have children themselves.

    In an `nn.Sequential`, which may hold anything, a class must occur at least twice. A container is a block only if it
    has no blocks inside.
    """
    return list(_blocks_in(model, ""))


def _blocks_in(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    kinds = Counter(map(type, module.children()))
    for name, child in module.named_children():
        inner = list(_blocks_in(child, f"{prefix}{name}."))
        repeated = isinstance(module, _CONTAINERS) and kinds[type(child)] > isinstance(module, nn.Sequential)
        has_parts = next(child.children(), None) is not None
        callable_child = not isinstance(child, nn.ModuleList | nn.ModuleDict)
        if repeated and has_parts and callable_child and not (isinstance(child, nn.Sequential) and inner):
            yield prefix + name, child
        else:
            yield from inner


def _recomputing(plain: type[nn.Module], method: str) -> type[nn.Module]:
    """A class like `plain`, with one method recomputed as the attribute `recomputed` says."""
    once = getattr(plain, method)

    def recomputed(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = functools.partial(once, self, **kwargs)
        if self.recomputed == "none" or not torch.is_grad_enabled():
            return call(*args)
        selective = self.recomputed == "selective"
        norms = [] if torch.compiler.is_compiling() else _tracking_norms(self)
        if not (selective or norms):
            return checkpoint(call, *args, use_reentrant=False)
        contexts = functools.partial(_contexts, norms, selective=selective)
        return checkpoint(call, *args, use_reentrant=False, context_fn=contexts)

    named = {"__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
    return type(plain.__name__, (plain,), {**named, method: recomputed, "recomputed": "none"})


def _contexts(norms: list[Any], *, selective: bool) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """The context of a block's forward, and the context of its recomputation."""
    forward, again = create_selective_checkpoint_contexts(policy()) if selective else (nullcontext(), nullcontext())
    return (forward, _untracked(norms, again)) if norms else (forward, again)


def _tracking_norms(block: nn.Module) -> list[Any]:
    return [module for module in block.modules() if module.training and getattr(module, "track_running_stats", False)]


@contextmanager
def _untracked(norms: list[Any], context: AbstractContextManager[Any]) -> Iterator[None]:
    """A context in which batch norms do not update running statistics: forward has already done it."""
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        with context:
            yield
    finally:
        for norm, (momentum, batches) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, batches
