"""The mesh: arranges ranks as replicas of shards of context-parallel groups of tensor-parallel groups.

| dimension      | along it                                                  | set by                             |
|----------------|-----------------------------------------------------------|------------------------------------|
| `dp_replicate` | ranks hold the same model, or the same shards             | a number, or what `dp_shard` leaves |
| `dp_shard`     | parameters, gradients and optimizer state are sharded     | a number, or -1: all that is left  |
| `cp`           | ranks have parts of the tokens of the same samples        | a number, and a `context_plan`     |
| `tp`           | single layers are split; all its ranks see the same data  | a number, and a `tensor_plan`      |

The product is the number of ranks. Ranks of one `tp` group are consecutive, so that they share a node; then come those
of one `cp` group. Parameters are sharded over `dp_shard` x `cp`: to them, other tokens are like other samples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe

REPLICATE, SHARD, CONTEXT, TENSOR = DIMENSIONS = ("dp_replicate", "dp_shard", "cp", "tp")
"""The dimensions of a mesh, outermost first. Fields of `Layout` and of `Recipe` have the same names."""


@dataclass(frozen=True)
class Layout:
    """The sizes of the mesh, and the number of this rank."""

    dp_replicate: int = 1
    dp_shard: int = 1
    cp: int = 1
    tp: int = 1
    rank: int = 0

    @property
    def ranks(self) -> int:
        return self.data_ranks * self.alike

    @property
    def data_ranks(self) -> int:
        """How many ranks see different data."""
        return self.dp_replicate * self.dp_shard

    @property
    def alike(self) -> int:
        """How many ranks take the same samples: they are consecutive, and have parts of the tokens or of the layers."""
        return self.cp * self.tp

    @property
    def data_rank(self) -> int:
        """Which share of the data this rank takes."""
        return self.rank // self.alike

    @property
    def context_rank(self) -> int:
        """Which part of the tokens this rank has."""
        return self.rank // self.tp % self.cp

    @property
    def leads(self) -> bool:
        """Whether this is the first of the ranks that take the same samples."""
        return self.rank % self.alike == 0

    @property
    def speaks(self) -> bool:
        """Whether this rank's loss counts; the other ranks of a tensor-parallel group have the same one."""
        return self.rank % self.tp == 0

    @property
    def sharded_over(self) -> int:
        """How many ranks hold one copy of the parameters."""
        return self.dp_shard * self.cp

    @property
    def replicates(self) -> bool:
        """Whether every rank keeps the whole model: plain data parallelism."""
        return self.dp_replicate > 1 and self.dp_shard == self.alike == 1

    @property
    def shards(self) -> bool:
        """Whether parameters are shards. With tensor parallelism they always are, if only one shard of one.

        An optimizer cannot update plain tensors and shards together.
        """
        return self.ranks > 1 and not self.replicates

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each dimension, outermost first."""
        return {name: getattr(self, name) for name in DIMENSIONS}

    def __str__(self) -> str:
        return " ".join(f"{name}={size}" for name, size in self.sizes.items() if size > 1) or "1 rank"


def layout_of(recipe: Recipe, *, rank: int = 0, ranks: int = 1) -> Layout:
    """The layout of a recipe on this many ranks; `dp_shard=-1` takes what the other dimensions leave.

    If `dp_shard` is given and `dp_replicate` is not, the remaining ranks are replicas.
    """
    if recipe.step is not None and ranks > 1:
        raise RecipeError(f"{recipe.name} has its own step, which runs on one rank; here are {ranks}")
    replicate = recipe.dp_replicate
    if replicate == 1 and recipe.dp_shard > 0:
        replicate = max(1, ranks // (recipe.dp_shard * recipe.cp * recipe.tp))
    others = replicate * recipe.cp * recipe.tp
    shard = recipe.dp_shard if recipe.dp_shard > 0 else max(1, ranks // others)
    if others * shard != ranks:
        wanted = "-1" if recipe.dp_shard < 0 else f"{recipe.dp_shard}"
        parts = f"cp={recipe.cp} x tp={recipe.tp}" if recipe.cp > 1 else f"tp={recipe.tp}"
        raise RecipeError(
            f"dp_replicate={replicate} x dp_shard={wanted} x {parts} does not make {ranks} rank(s): "
            + (f"it takes {others * shard}" if recipe.dp_shard > 0 else f"{ranks} is not a multiple of {others}")
        )
    return Layout(replicate, shard, recipe.cp, recipe.tp, rank)


def with_global_batch(recipe: Recipe, layout: Layout) -> Recipe:
    """The recipe with a global batch. If it sets none, every data rank adds one micro-batch."""
    if recipe.global_batch_tokens is not None or layout.data_ranks == 1:
        return recipe
    return replace(recipe, global_batch_tokens=layout.data_ranks * recipe.tokens_per_step)


def mesh_of(layout: Layout, device: torch.device) -> DeviceMesh | None:
    """A mesh with a dimension for every size above 1; None for a single rank.

    Sharding needs its dimension even if its size is 1. It includes the ranks of `cp`, which have a group of their own.
    """
    if layout.ranks == 1:
        return None
    sizes = {REPLICATE: layout.dp_replicate, SHARD: layout.sharded_over, TENSOR: layout.tp}
    kept = {name: size for name, size in sizes.items() if size > 1 or (name == SHARD and layout.shards)}
    return init_device_mesh(device.type, tuple(kept.values()), mesh_dim_names=tuple(kept))


def context_group(layout: Layout, device: torch.device) -> ProcessGroup:
    """The ranks that have the other tokens of this rank's samples."""
    sizes = (layout.data_ranks, layout.cp, layout.tp)
    if layout.ranks == layout.cp:  # a mesh would take the default group, and traffic over it would bear another name
        return dist.new_group(list(range(layout.ranks)), group_desc=f"mesh_{CONTEXT}")
    return init_device_mesh(device.type, sizes, mesh_dim_names=("data", CONTEXT, TENSOR)).get_group(CONTEXT)
