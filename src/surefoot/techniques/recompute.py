"""Recompute: forget a block's activations after forward, and run its forward again in backward.

| `recompute`   | which blocks run again                                    | kept of them, besides their inputs       |
|---------------|-----------------------------------------------------------|------------------------------------------|
| `none`        | none                                                      |                                          |
| `full`        | all                                                       | nothing                                  |
| `selective`   | all                                                       | results of attention and convolutions,   |
|               |                                                           | and of every second matrix product       |
| `budget=0.5`  | those that `budget.py` chooses, so that all keep at most  | nothing, or as with `selective`          |
|               | half of what `full` gives up                              |                                          |
| `budget=2GiB` | those that it chooses, so that all keep at most 2 GiB     | nothing, or as with `selective`          |

Blocks are the repeated modules of a model. Random numbers are drawn again as they were, so dropout drops the same
elements; running statistics of batch norms are not updated again.
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
from surefoot.techniques import budget
from surefoot.techniques.budget import Block, Settled
from surefoot.techniques.selective import policy
from surefoot.world.world import World

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


@dataclass
class Recomputation:
    """What a model recomputes, and why."""

    way: str
    blocks: list[Block]
    settled: Settled | None = None
    """What a budget came to; None before the first forward, and where there is none."""

    def recomputed(self, *ways: str) -> list[str]:
        """The names of the blocks that run again in backward; of those, the ones that are recomputed in these ways."""
        return [block.name for block in self.blocks if block.module.recomputed in (ways or ("full", "selective"))]

    def explain(self) -> list[str]:
        """One sentence, unless nothing was asked for."""
        if self.way == "none":
            return []
        full, selective = (self._named(self.recomputed(way)) for way in ("full", "selective"))
        which = f"{full or selective or 0} of {len(self.blocks)} blocks run again in backward"
        if selective and self.way != "selective":
            which += f", {selective} selectively" if full else ", selectively"
        return [f"recompute={self.way}: {which}{f'; {self.settled.reason}' if self.settled else ''}"]

    def _named(self, names: list[str]) -> str:
        """How many these are, and which; empty where there is none."""
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
    """Has the model's blocks recomputed, as the recipe says. Names, classes' names and state stay as they are.

    What is recomputed is a call of the block, hooks and all, as in `checkpoint(block, ...)`; where blocks are
    compiled, it is their forward, so that the compiler sees it. `sharded` says in which formats the model will be
    gathered, if it will be sharded.
    """
    way, limit = recipe.recompute, budget_of(recipe.recompute)
    if way == "none":
        return Recomputation(way, [])
    blocks = [Block(name, module) for name, module in blocks_of(model)]
    if not blocks:
        raise RecipeError(
            f"recompute={way!r} needs blocks to recompute, and {type(model).__name__} has none: no nn.ModuleList, "
            "nn.ModuleDict or nn.Sequential of it holds modules of one class that have modules of their own"
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
    """Settles a budget when the model is first called to be trained, just before it computes."""
    if recipe.tp > 1:
        raise RecipeError(
            f"recompute={recipe.recompute!r} cannot be settled with tp={recipe.tp}; set full or selective"
        )
    stand_in = budget.Whole(model) if sharded is None else budget.Unsharded(model, sharded.param_dtype)

    def settle(_: nn.Module, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled():
            hook.remove()
            made.settled = budget.settle(stand_in, made.blocks, (args, kwargs), limit, world, recipe.density)

    hook = model.register_forward_pre_hook(settle, with_kwargs=True)


def blocks_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The outermost repeated modules: children of one class, with modules of their own, of a list, dict or sequence.

    In an `nn.Sequential`, which may hold anything, a class counts as repeated from the second on. A container is
    called a block only if there are no blocks inside it.
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
    """A class like `plain`, one method of which is recomputed in the way that `recomputed` says."""
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
    """What a block's forward runs in, and what its recomputation does."""
    forward, again = create_selective_checkpoint_contexts(policy()) if selective else (nullcontext(), nullcontext())
    return (forward, _untracked(norms, again)) if norms else (forward, again)


def _tracking_norms(block: nn.Module) -> list[Any]:
    return [module for module in block.modules() if module.training and getattr(module, "track_running_stats", False)]


@contextmanager
def _untracked(norms: list[Any], context: AbstractContextManager[Any]) -> Iterator[None]:
    """A context in which batch norms leave their running statistics alone: forward has updated them already."""
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        with context:
            yield
    finally:
        for norm, (momentum, batches) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, batches
