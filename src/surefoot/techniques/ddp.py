"""DDP: every rank keeps the whole model and sees its share of the data; gradients are averaged during backward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from surefoot.techniques.mesh import REPLICATE, Layout
from surefoot.torch_inside.ddp import Replicas


def apply(model: nn.Module, mesh: DeviceMesh, bucket_cap_mb: float | None = None) -> DistributedDataParallel:
    """The wrapper that the loss calls instead of the model. The model keeps its names and parameters.

    Gradients are views of DDP's buckets, so they are not stored twice.
    """
    return Replicas(model, mesh.get_group(REPLICATE), bucket_cap_mb)


@contextmanager
def syncing(model: DistributedDataParallel, wanted: bool) -> Iterator[None]:
    """A context in which backward reduces gradients over ranks, or only adds them up on this rank."""
    before, model.require_backward_grad_sync = model.require_backward_grad_sync, wanted
    try:
        yield
    finally:
        model.require_backward_grad_sync = before


def explain(layout: Layout) -> list[str]:
    """One sentence: what is replicated, and why."""
    return [f"{layout}: ddp keeps the whole model on each of {layout.dp_replicate} ranks, since dp_shard=1"]
