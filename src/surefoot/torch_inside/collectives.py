"""Collectives: the store and the groups of ranks, finished work, and the shapes that DTensor infers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from surefoot.torch_inside.fake_mode import FakeTensorMode
from surefoot.torch_inside.modes import without_modes
from surefoot.torch_inside.patches import patch


def default_store() -> dist.Store:
    """The store with which the ranks of the default group found each other."""
    return dist.distributed_c10d._get_default_store()


def group_of(operand: Any) -> dist.ProcessGroup | None:
    """The process group that an operand of a collective names or holds; None if it is something else."""
    if isinstance(operand, str):  # the last operand of a functional collective
        return dist.distributed_c10d._resolve_process_group(operand)  # type: ignore[arg-type]
    if isinstance(operand, torch.ScriptObject) and operand._type().name() == "ProcessGroup":  # type: ignore[attr-defined]
        return dist.ProcessGroup.unbox(operand)
    return None


def finished(tensors: list[torch.Tensor]) -> Any:
    """Work of a collective that is done, with these tensors as its result."""
    done: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
    done.set_result(tensors)
    return torch._C._distributed_c10d._create_work_from_future(done).boxed()  # type: ignore[attr-defined]


def import_fake_kernels() -> None:
    """Imports the fake kernels of collectives. Since torch 2.12 they are there without it."""
    import torch.distributed._tools.fake_collectives  # noqa: F401


def hide_inferred_shapes() -> Callable[[], None]:
    """Hides the operators that DTensor runs only to infer shapes. Returns the function that ends it."""
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    fakes = FakeTensorMode()

    def make(plain: Any) -> Any:
        def hidden(*args: Any) -> Any:
            with without_modes(), fakes:  # else DTensor makes a mode each time, which is slow
                return plain(*args)

        return hidden

    return patch(ShardingPropagator, "_propagate_tensor_meta_non_cached", make)
