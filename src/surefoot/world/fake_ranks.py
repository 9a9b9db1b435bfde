"""Fake ranks: torch.distributed with thousands of ranks in one process, in a time that does not grow with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from surefoot.errors import WorldError


@contextmanager
def fake_ranks(ranks: int) -> Iterator[None]:
    """A context in which this process is rank 0 of `ranks` ranks. Collectives send nothing."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise WorldError(
            "a process group is already initialised; call destroy_process_group() first, a fake world makes its own"
        )
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        with _own_chunk_only(), _meshes_remembered(), _strategies_remembered():
            yield
    finally:
        _forget_meshes()
        dist.destroy_process_group()


def _forget_meshes() -> None:
    """Clears DTensor's caches: they hold this world's groups of ranks, and the next mesh may look the same."""
    from torch.distributed.tensor import _redistribute
    from torch.distributed.tensor.debug import _clear_sharding_prop_cache

    _clear_sharding_prop_cache()
    _redistribute._gen_transform_infos.cache_clear()
    _redistribute.clear_redistribute_planner_cache()


@contextmanager
def _own_chunk_only() -> Iterator[None]:
    """FSDP cuts each parameter into the shards of all ranks and uses one. Here the others are not made.

    Otherwise the time of a plan would be proportional to ranks x parameters.
    """
    from torch.distributed.fsdp._fully_shard import _fsdp_param

    plain = _fsdp_param._chunk_with_empty
    _fsdp_param._chunk_with_empty = Chunks  # type: ignore[assignment]
    try:
        yield
    finally:
        _fsdp_param._chunk_with_empty = plain


@contextmanager
def _meshes_remembered() -> Iterator[None]:
    """FSDP makes two meshes of all ranks for every parameter. Here each is made once.

    On 16,384 ranks that is two thirds of the time of sharding, and most of the memory of a plan.
    """
    slice_of, whole_of = DeviceMesh.__getitem__, DeviceMesh._concatenate
    known: dict[Any, tuple[Any, DeviceMesh]] = {}  # keys are identities of their sources, which are kept alive too

    def one_slice(mesh: DeviceMesh, names: str | tuple[str, ...]) -> DeviceMesh:
        key = id(mesh), names
        if key not in known:
            known[key] = mesh, slice_of(mesh, names)
        return known[key][1]

    def one_whole(meshes: list[DeviceMesh]) -> DeviceMesh:
        key = tuple(map(id, meshes))
        if key not in known:
            known[key] = meshes, whole_of(meshes)
        return known[key][1]

    DeviceMesh.__getitem__, DeviceMesh._concatenate = one_slice, staticmethod(one_whole)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        DeviceMesh.__getitem__, DeviceMesh._concatenate = slice_of, staticmethod(whole_of)  # type: ignore[method-assign]


@contextmanager
def _strategies_remembered() -> Iterator[None]:
    """DTensor computes how to shard an operator for every tensor of a list. Here this is done once for all alike ones.

    On a mesh of three dimensions it takes 100 ms per tensor, and an optimizer's lists hold all parameters.
    """
    from torch.distributed.tensor._ops import utils

    plain, known = utils.expand_to_full_mesh_op_strategy, dict[Any, Any]()

    def remembered(mesh: Any, schema: Any, placements: Any, **how: Any) -> Any:
        try:
            specs = tuple(
                tuple(each.output_spec for each in strategy.strategies)
                for strategy in (*schema.args_strategy, *schema.kwargs_strategy)
            )
            key = mesh, schema.op, specs, str(placements), str(how)
            if key not in known:
                known[key] = plain(mesh, schema, placements, **how)
            return known[key]
        except TypeError:  # a part of the key is not hashable
            return plain(mesh, schema, placements, **how)

    utils.expand_to_full_mesh_op_strategy = remembered  # type: ignore[assignment]
    try:
        yield
    finally:
        utils.expand_to_full_mesh_op_strategy = plain


class Chunks:
    """The chunks of a tensor like `torch.chunk`, padded to `count` with empty ones. Each is made on access."""

    def __init__(self, tensor: torch.Tensor, count: int, dim: int) -> None:
        self._tensor, self._count, self._dim = tensor, count, dim
        self._size = -(-tensor.size(dim) // count)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        if not 0 <= index < self._count:
            raise IndexError(index)
        first = index * self._size
        length = min(self._size, self._tensor.size(self._dim) - first)
        return self._tensor.narrow(self._dim, first, length) if length > 0 else self._tensor.new_empty(0)
