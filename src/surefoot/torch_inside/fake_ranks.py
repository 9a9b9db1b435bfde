"""Fake ranks: torch.distributed with thousands of ranks in one process, in a time that does not grow with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from surefoot.errors import WorldError
from surefoot.torch_inside.collectives import import_fake_kernels
from surefoot.torch_inside.patches import patched


@contextmanager
def fake_ranks(ranks: int) -> Iterator[None]:
    """A context in which this process is rank 0 of `ranks` ranks. Collectives send nothing."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise WorldError(
            "a process group is already initialised; call destroy_process_group() first, a fake world makes its own"
        )
    import_fake_kernels()
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        with _own_chunk_only(), _meshes_remembered(), _strategies_remembered():
            yield
    finally:
        _forget_meshes()
        dist.destroy_process_group()


def _forget_meshes() -> None:
    """Clears DTensor's caches: they hold this world's groups of ranks, and the next mesh may look the same.

    Not every torch has all of them.
    """
    from torch.distributed.tensor import DTensor, _redistribute, debug

    if hasattr(debug, "_clear_sharding_prop_cache"):  # since torch 2.10
        debug._clear_sharding_prop_cache()
    else:
        DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding.cache.cache_clear()
    getattr(_redistribute, "clear_redistribute_planner_cache", _nothing)()
    _redistribute._gen_transform_infos.cache_clear()


def _nothing() -> None:
    pass


def _own_chunk_only() -> AbstractContextManager[None]:
    """FSDP cuts each parameter into the shards of all ranks and uses one. Here the others are not made.

    Otherwise the time of a plan would be proportional to ranks x parameters.
    """
    from torch.distributed.fsdp._fully_shard import _fsdp_param

    return patched(_fsdp_param, "_chunk_with_empty", lambda _: Chunks)


@contextmanager
def _meshes_remembered() -> Iterator[None]:
    """FSDP makes two meshes of all ranks for every parameter. Here each is made once.

    On 16,384 ranks that is two thirds of the time of sharding, and most of the memory of a plan.
    """
    known: dict[Any, tuple[Any, DeviceMesh]] = {}  # keys are identities of their sources, which are kept alive too

    def slices(plain: Any) -> Any:
        def one_slice(mesh: DeviceMesh, names: str | tuple[str, ...]) -> DeviceMesh:
            key = id(mesh), names
            if key not in known:
                known[key] = mesh, plain(mesh, names)
            return known[key][1]

        return one_slice

    def wholes(plain: Any) -> Any:
        def one_whole(meshes: list[DeviceMesh]) -> DeviceMesh:
            key = tuple(map(id, meshes))
            if key not in known:
                known[key] = meshes, plain(meshes)
            return known[key][1]

        return one_whole

    with ExitStack() as entered:
        entered.enter_context(patched(DeviceMesh, "__getitem__", slices))
        if hasattr(DeviceMesh, "_concatenate"):  # since torch 2.10
            entered.enter_context(patched(DeviceMesh, "_concatenate", wholes))
        yield


def _strategies_remembered() -> AbstractContextManager[None]:
    """DTensor computes how to shard an operator for every tensor of a list. Here this is done once for all alike ones.

    On a mesh of three dimensions it takes 100 ms per tensor, and an optimizer's lists hold all parameters.
    """
    from torch.distributed.tensor._ops import utils

    def make(plain: Any) -> Any:
        known = dict[Any, Any]()

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
            except (AttributeError, TypeError):  # a part of the key is not hashable, or not in this torch
                return plain(mesh, schema, placements, **how)

        return remembered

    return patched(utils, "expand_to_full_mesh_op_strategy", make)


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


@contextmanager
def ranks_of_a_script(ranks: int, device: torch.device, on_card: AbstractContextManager[None]) -> Iterator[None]:
    """A context in which the process group that a script makes has `ranks` fake ranks, of which this is the first.

    `device` is the card of this rank. `on_card` is a context in which tensors that C++ makes are on it.
    """
    from torch.distributed import device_mesh, distributed_c10d
    from torch.distributed.fsdp._fully_shard import _fsdp_init, _fully_shard
    from torch.nn.parallel import DistributedDataParallel
    from torch.testing._internal.distributed.fake_pg import FakeStore

    import_fake_kernels()

    def begins(plain: Any) -> Any:
        def begin(*_: Any, **__: Any) -> None:
            plain("fake", rank=0, world_size=ranks, store=FakeStore())

        return begin

    def meshes(plain: Any) -> Any:  # on the CPU: there DTensor makes tensors of its own
        def mesh(self: DeviceMesh, device_type: str, *args: Any, **kwargs: Any) -> None:
            plain(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

        return mesh

    def within(plain: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            with on_card:
                return plain(*args, **kwargs)

        return run

    with ExitStack() as entered:
        for context in (_own_chunk_only(), _meshes_remembered(), _strategies_remembered()):
            entered.enter_context(context)
        for owner in (dist, distributed_c10d, device_mesh):
            entered.enter_context(patched(owner, "init_process_group", begins))
        entered.enter_context(patched(dist, "barrier", lambda _: lambda *_, **__: None))
        entered.enter_context(patched(dist, "is_nccl_available", lambda _: lambda: True))
        entered.enter_context(patched(DeviceMesh, "__init__", meshes))
        for module in (_fsdp_init, _fully_shard):
            if hasattr(module, "_get_device_from_mesh"):
                entered.enter_context(patched(module, "_get_device_from_mesh", lambda _: lambda mesh: device))
        for name in ("__init__", "_pre_forward"):
            entered.enter_context(patched(DistributedDataParallel, name, within))
        try:
            yield
        finally:
            _forget_meshes()
            if dist.is_initialized():
                dist.destroy_process_group()
