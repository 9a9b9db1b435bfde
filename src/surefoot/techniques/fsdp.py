"""FSDP: shards parameters, gradients and optimizer state over ranks, and gathers parameters block by block.

With replicas (`dp_replicate` above 1), gradients are reduced over shards first, then over replicas: hybrid sharding.

| `precision`  | gathered and computed in | gradients reduced in | kept in  | the model's result |
|--------------|--------------------------|----------------------|----------|--------------------|
| `32-true`    | float32                  | float32              | float32  | as it is           |
| `bf16-mixed` | bfloat16                 | float32              | float32  | float32            |
| `16-mixed`   | float16                  | float32              | float32  | float32            |
| `bf16-true`  | bfloat16                 | bfloat16             | bfloat16 | as it is           |

With `reduce_in=bfloat16` the gradients of both mixed precisions are reduced in bfloat16: half the traffic, and sums
with 8 bits. There is no autocast here: a block computes in the format in which it is gathered.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe
from surefoot.techniques.mesh import REPLICATE, SHARD, Layout
from surefoot.techniques.precision import COMPUTED_IN
from surefoot.techniques.recompute import blocks_of


@dataclass(frozen=True)
class Sharding:
    """Which modules are sharded on their own, and why."""

    layout: Layout
    names: tuple[str, ...]
    reason: str

    def explain(self) -> list[str]:
        """One sentence: what is sharded, and what is gathered together."""
        shards, replicas = self.layout.sharded_over, self.layout.dp_replicate
        if shards == 1:
            return [f"{self.layout}: {replicas} replicas, whose gradients are averaged"] if replicas > 1 else []
        cut = f"{self.layout}: fsdp shards the model over {shards} ranks"
        cut += f", in {replicas} replicas," if replicas > 1 else ""
        if not self.names:
            return [f"{cut} and gathers it as one, since {self.reason}"]
        which = self.names[0] if len(self.names) == 1 else f"{self.names[0]} to {self.names[-1]}"
        return [f"{cut} and gathers {len(self.names)} blocks ({which}) one by one, the rest as one; {self.reason}"]


def apply(model: nn.Module, recipe: Recipe, layout: Layout, mesh: DeviceMesh) -> Sharding:
    """Shards the blocks of a model, then the rest of it, over the data dimensions of a mesh."""
    names, reason = chosen(model, recipe)
    _refuse_mixed_formats(model, names)
    over = mesh[REPLICATE, SHARD] if layout.dp_replicate > 1 else mesh[SHARD]
    reshard = recipe.reshard_after_forward
    for name in names:
        again = name != names[-1] if reshard == "but-last" else reshard
        fully_shard(model.get_submodule(name), mesh=over, mp_policy=policy(recipe), reshard_after_forward=again)
    fully_shard(model, mesh=over, mp_policy=policy(recipe, root=True), reshard_after_forward=False)
    _gather_no_frozen_ahead(model, names)
    return Sharding(layout, names, reason)


def _refuse_mixed_formats(model: nn.Module, names: tuple[str, ...]) -> None:
    """Refuses what fully_shard cannot reduce: trained parameters in several number formats, gathered together."""
    groups = [list(model.get_submodule(name).parameters()) for name in names]
    inside = {id(each) for group in groups for each in group}
    for group in (*groups, [each for each in model.parameters() if id(each) not in inside]):
        formats = sorted({str(each.dtype).removeprefix("torch.") for each in group if each.requires_grad})
        if len(formats) > 1:
            raise RecipeError(
                f"FSDP2 cannot shard trained parameters in {' and '.join(formats)} together: set dp_shard=1 for plain "
                "replicas, or precision=bf16-mixed, which keeps all of them in float32"
            )


def _gather_no_frozen_ahead(model: nn.Module, names: tuple[str, ...]) -> None:
    """Keeps backward from gathering frozen blocks that it does not reach: those before the first trained parameter.

    In backward, fully_shard gathers the block that ran before ahead of time. Of the first block with gradients, that
    block has none: it would be gathered for nothing, and without an accelerator torch 2.13 fails at the end.
    """
    places = {id(each): place for place, each in enumerate(model.parameters())}
    trained = min((places[id(each)] for each in model.parameters() if each.requires_grad), default=0)
    ends = [max((places[id(each)] for each in model.get_submodule(name).parameters()), default=0) for name in names]
    reached = [name for name, end in zip(names, ends, strict=True) if end >= trained]
    if len(reached) < len(names):
        first: Any = model.get_submodule(reached[0]) if reached else model
        first.set_modules_to_backward_prefetch([first])  # itself is gathered already


def policy(recipe: Recipe, *, root: bool = False) -> MixedPrecisionPolicy:
    """The formats of gathered parameters and reduced gradients. The root module returns float32, for the loss."""
    if recipe.precision not in COMPUTED_IN:
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(
        param_dtype=COMPUTED_IN[recipe.precision],
        reduce_dtype=getattr(torch, recipe.reduce_in),
        output_dtype=torch.float32 if root else None,
    )


@contextmanager
def calling() -> Iterator[None]:
    """A context for calls of a sharded model.

    If the model returns a view, fully_shard warns that an in-place change would drop the hook that gathers the root
    again for backward. The root is never resharded after forward, so there is nothing to gather.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"FSDP2-wrapped module .* returned a view tensor")
        yield


@contextmanager
def syncing(model: FSDPModule, wanted: bool) -> Iterator[None]:
    """A context in which backward reduces gradients over ranks, or only adds them up on this rank."""
    model.set_requires_gradient_sync(wanted)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


def chosen(model: nn.Module, recipe: Recipe) -> tuple[tuple[str, ...], str]:
    """The names of the modules that are sharded on their own, and the reason for the choice."""
    if recipe.shard_blocks is None:
        found = tuple(name for name, _ in blocks_of(model))
        kind = type(model).__name__
        return found, f"they are the repeated modules of {kind}" if found else f"{kind} has no repeated modules"
    names = {module: name for name, module in model.named_modules()}
    wanted = list(recipe.shard_blocks(model))
    for module in wanted:
        if module not in names:
            raise RecipeError(f"shard_blocks returned a {type(module).__name__} that is not part of the model")
    return tuple(names[module] for module in wanted), "the recipe's shard_blocks names them"


def reshard(model: nn.Module) -> None:
    """Frees gathered parameters. A forward pass without a backward leaves those of the outermost module gathered."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
