"""The mesh: arranges ranks as replicas of shards of tensor-parallel groups.

| dimension      | along it                                                  | set by                             |
|----------------|-----------------------------------------------------------|------------------------------------|
| `dp_replicate` | ranks hold the same model, or the same shards             | a number, or what `dp_shard` leaves |
| `dp_shard`     | parameters, gradients and optimizer state are sharded     | a number, or -1: all that is left  |
| `tp`           | single layers are split; all its ranks see the same data  | a number, and a `tensor_plan`      |

The product is the number of ranks. Ranks of one `tp` group are consecutive, so that they share a node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe

REPLICATE, SHARD, TENSOR = DIMENSIONS = ("dp_replicate", "dp_shard", "tp")
"""The dimensions of a mesh, outermost first. Fields of `Layout` and of `Recipe` have the same names."""


@dataclass(frozen=True)
class Layout:
    """The sizes of the mesh, and the number of this rank."""

    dp_replicate: int = 1
    dp_shard: int = 1
    tp: int = 1
    rank: int = 0

    @property
    def ranks(self) -> int:
        return self.data_ranks * self.tp

    @property
    def data_ranks(self) -> int:
        """How many ranks see different data."""
        return self.dp_replicate * self.dp_shard

    @property
    def data_rank(self) -> int:
        """Which share of the data this rank sees; the same for all ranks of a tensor-parallel group."""
        return self.rank // self.tp

    @property
    def speaks(self) -> bool:
        """Whether this rank's loss counts; the other ranks of a tensor-parallel group have the same one."""
        return self.rank % self.tp == 0

    @property
    def replicates(self) -> bool:
        """Whether every rank keeps the whole model: plain data parallelism."""
        return self.dp_replicate > 1 and self.dp_shard == self.tp == 1

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
        replicate = max(1, ranks // (recipe.dp_shard * recipe.tp))
    others = replicate * recipe.tp
    shard = recipe.dp_shard if recipe.dp_shard > 0 else max(1, ranks // others)
    if others * shard != ranks:
        wanted = "-1" if recipe.dp_shard < 0 else f"{recipe.dp_shard}"
        raise RecipeError(
            f"dp_replicate={replicate} x dp_shard={wanted} x tp={recipe.tp} does not make {ranks} rank(s): "
            + (f"it takes {others * shard}" if recipe.dp_shard > 0 else f"{ranks} is not a multiple of {others}")
        )
    return Layout(replicate, shard, recipe.tp, rank)


def with_global_batch(recipe: Recipe, layout: Layout) -> Recipe:
    """The recipe with a global batch. If it sets none, every data rank adds one micro-batch."""
    if recipe.global_batch_tokens is not None or layout.data_ranks == 1:
        return recipe
    return replace(recipe, global_batch_tokens=layout.data_ranks * recipe.tokens_per_step)


def mesh_of(layout: Layout, device: torch.device) -> DeviceMesh | None:
    """A mesh with a dimension for every size above 1; None for a single rank.

    Sharding needs its dimension even if its size is 1.
    """
    if layout.ranks == 1:
        return None
    kept = {name: size for name, size in layout.sizes.items() if size > 1 or (name == SHARD and layout.shards)}
    return init_device_mesh(device.type, tuple(kept.values()), mesh_dim_names=tuple(kept))
