"""Recompute: forget a block's activations after forward, and run its forward again in backward.

| `recompute`   | which blocks run again                                    | kept of them, besides their inputs       |
|---------------|-----------------------------------------------------------|------------------------------------------|
| `none`        | none                                                      |                                          |
| `full`        | all                                                       | nothing                                  |
| `selective`   | all                                                       | results of attention and convolutions,   |
|               |                                                           | and of every second matrix product       |
| `budget=0.5`  | as few as possible, so that the others keep at most half  | nothing                                  |
|               | of what `full` gives up                                   |                                          |
| `budget=2GiB` | as few as possible, so that all blocks keep at most 2 GiB | nothing                                  |

Blocks are the repeated modules of a model. What they keep is what autograd saves in them for one micro-batch: each
storage once, the blocks' inputs too, without parameters. A budget is settled on the first micro-batch, by a forward on
fake tensors. Random numbers are drawn again as they were, so dropout drops the same elements; running statistics of
batch norms are not updated again.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from surefoot.errors import RecipeError
from surefoot.fakes import rehearsal
from surefoot.recipe import Recipe, budget_of
from surefoot.trees import tensors_in

aten = torch.ops.aten

KEPT = frozenset(
    {
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_cudnn_attention.default,
        aten.convolution.default,
    }
)
"""Operators whose results `selective` always keeps."""

EVERY_SECOND = frozenset(
    {aten.mm.default, aten.addmm.default, aten._scaled_mm.default, aten._grouped_mm.default, aten.linear.default}
)
"""Operators of which `selective` keeps every second result of a block, the first one included, as torchtitan does.

Batched products are not among them: where attention is written out, they make its full square.
"""

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


@dataclass
class Block:
    """One repeated module, and what a forward on fakes found out about it, where a budget asked for it."""

    name: str
    module: Any
    saved_bytes: int = 0
    """What it keeps for backward when it is not recomputed, without what is an input of a block."""
    flops: int = 0


@dataclass
class Recomputation:
    """What a model recomputes, and why."""

    way: str
    blocks: list[Block]
    reason: str = ""

    @property
    def recomputed(self) -> list[str]:
        """The names of the blocks that run again in backward."""
        return [block.name for block in self.blocks if block.module.recomputed]

    def explain(self) -> list[str]:
        """One sentence, unless nothing was asked for."""
        if self.way == "none":
            return []
        names, all_names = self.recomputed, [block.name for block in self.blocks]
        start = all_names.index(names[0]) if names else 0
        in_a_row = len(names) > 2 and names == all_names[start : start + len(names)]
        which = f" ({names[0]} to {names[-1]})" if in_a_row else f" ({', '.join(names)})" if names else ""
        why = f"; {self.reason}" if self.reason else ""
        return [f"recompute={self.way}: {len(names)} of {len(all_names)} blocks run again in backward{which}{why}"]


def apply(model: nn.Module, recipe: Recipe, *, compiled: bool = False) -> Recomputation:
    """Has the model's blocks recomputed, as the recipe says. Names, classes' names and state stay as they are.

    What is recomputed is a call of the block, hooks and all, as in `checkpoint(block, ...)`; where blocks are
    compiled, it is their forward, so that the compiler sees it.
    """
    way, budget = recipe.recompute, budget_of(recipe.recompute)
    if way == "none":
        return Recomputation(way, [])
    blocks = [Block(name, module) for name, module in blocks_of(model)]
    if not blocks:
        raise RecipeError(
            f"recompute={way!r} needs blocks to recompute, and {type(model).__name__} has none: no nn.ModuleList, "
            "nn.ModuleDict or nn.Sequential of it holds modules of one class that have modules of their own"
        )
    for plain in {type(block.module) for block in blocks}:
        swapped = _recomputing(plain, "forward" if compiled else "__call__", selective=way == "selective")
        for block in blocks:
            if type(block.module) is plain:
                block.module.__class__ = swapped
                block.module.recomputed = budget is None
    made = Recomputation(way, blocks)
    if budget is not None:
        _choose_at_first_forward(model, made, budget, recipe.density)
    return made


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


def _recomputing(plain: type[nn.Module], method: str, *, selective: bool) -> type[nn.Module]:
    """A class like `plain`, one method of which is recomputed."""
    once = getattr(plain, method)

    def recomputed(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = functools.partial(once, self, **kwargs)
        if not (self.recomputed and torch.is_grad_enabled()):
            return call(*args)
        norms = [] if torch.compiler.is_compiling() else _tracking_norms(self)
        if not (selective or norms):
            return checkpoint(call, *args, use_reentrant=False)
        contexts = functools.partial(_contexts, norms, selective=selective)
        return checkpoint(call, *args, use_reentrant=False, context_fn=contexts)

    named = {"__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
    return type(plain.__name__, (plain,), {**named, method: recomputed, "recomputed": True})


def _contexts(norms: list[Any], *, selective: bool) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """What a block's forward runs in, and what its recomputation does."""
    forward, again = create_selective_checkpoint_contexts(_policy()) if selective else (nullcontext(), nullcontext())
    return (forward, _untracked(norms, again)) if norms else (forward, again)


def _policy() -> Callable[..., CheckpointPolicy]:
    """Says of each operator of a block whether its result is kept. Forward and recomputation count products alike."""
    products: Counter[bool] = Counter()

    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        kept = operator in KEPT
        if operator in EVERY_SECOND:
            products[context.is_recompute] += 1
            kept = products[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


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


def _choose_at_first_forward(model: nn.Module, made: Recomputation, budget: float, density: float | None) -> None:
    """Settles a budget when the model is first called to be trained, just before it computes."""

    def settle(_: nn.Module, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled():
            hook.remove()
            input_bytes = _measure(model, made.blocks, (args, kwargs), density)
            made.reason = choose(made.blocks, input_bytes, budget)

    hook = model.register_forward_pre_hook(settle, with_kwargs=True)


def choose(blocks: list[Block], input_bytes: int, budget: float) -> str:
    """Picks the blocks to recompute so that what all keep stays within a budget, and says how.

    Spared are the blocks that take the most FLOPs for the bytes they keep; of equals the last ones, whose
    activations are gone before the first are recomputed.
    """
    most = input_bytes + sum(block.saved_bytes for block in blocks)
    limit = budget if isinstance(budget, int) else input_bytes + budget * (most - input_bytes)
    if limit < input_bytes:
        raise RecipeError(
            f"a recompute budget of {_mebibytes(limit)} cannot be met: the inputs of the blocks alone take "
            f"{_mebibytes(input_bytes)}; lower micro_batch_size, or allow more"
        )
    kept = input_bytes
    ranked = sorted(enumerate(blocks), key=lambda pair: (pair[1].flops / max(1, pair[1].saved_bytes), pair[0]))
    for _, block in reversed(ranked):
        block.module.recomputed = kept + block.saved_bytes > limit
        kept += 0 if block.module.recomputed else block.saved_bytes
    return (
        f"{_mebibytes(kept)} kept for backward of at most {_mebibytes(limit)}; "
        f"{_mebibytes(most)} without recomputing, {_mebibytes(input_bytes)} with all recomputed"
    )


def _measure(model: nn.Module, blocks: list[Block], given: tuple[Any, Any], density: float | None) -> int:
    """Runs a forward on fakes, notes what each block saves and computes, and returns the bytes of all inputs."""
    attention = {aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v)}
    watchers = [_Watcher(block.module) for block in blocks]
    state = dict((*model.named_parameters(), *model.named_buffers()))
    try:
        with (
            rehearsal([state, given], density) as fake,
            FlopCounterMode(display=False, custom_mapping=attention) as counter,
        ):
            fakes = fake(state)
            functional_call(model, fakes, *fake(given))
    finally:
        for watcher in watchers:
            watcher.remove()
    inputs = {key: storage for watcher in watchers for key, storage in watcher.inputs.items()}
    known = {*inputs, *_storages(fakes)}
    counts = counter.get_flop_counts()
    for block, watcher in zip(blocks, watchers, strict=True):
        block.saved_bytes = sum(each.nbytes() for key, each in watcher.saved.items() if key not in known)
        block.flops = sum(counts.get(f"{type(model).__name__}.{block.name}", {}).values())
        known |= set(watcher.saved)
    return sum(storage.nbytes() for storage in inputs.values())


class _Watcher:
    """Collects the storages that a module is given and those that autograd saves while it runs."""

    def __init__(self, module: nn.Module) -> None:
        self.inputs: dict[int, torch.UntypedStorage] = {}
        self.saved: dict[int, torch.UntypedStorage] = {}
        self._saving = saved_tensors_hooks(self._save, lambda nothing: nothing)
        self._hooks = (
            module.register_forward_pre_hook(self._begin, with_kwargs=True),
            module.register_forward_hook(self._end, always_call=True),
        )

    def _begin(self, _: nn.Module, args: Any, kwargs: Any) -> None:
        self.inputs |= _storages([args, kwargs])
        self._saving.__enter__()

    def _end(self, *_: Any) -> None:
        self._saving.__exit__(None, None, None)

    def _save(self, tensor: torch.Tensor) -> None:
        self.saved |= _storages(tensor)  # autograd keeps nothing: there will be no backward

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()


def _storages(tree: Any) -> dict[int, torch.UntypedStorage]:
    """The storages of a tree's tensors. They are held, so that no other takes the identity of one that is gone."""
    return {id(storage): storage for storage in (tensor.untyped_storage() for tensor in tensors_in(tree))}


def _mebibytes(amount: float) -> str:
    return f"{amount / 2**20:,.2f} MiB"
