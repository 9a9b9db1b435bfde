"""DDP: every rank keeps the whole model and sees its share of the data; gradients are averaged while they are made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from surefoot.techniques.mesh import Layout


def apply(model: nn.Module, mesh: DeviceMesh) -> DistributedDataParallel:
    """What the loss calls in place of the model, which keeps its names and its parameters.

    Gradients are views of the buckets in which they travel, so that they are not kept twice.
    """
    return DistributedDataParallel(model, process_group=mesh.get_group("dp_replicate"), gradient_as_bucket_view=True)


@contextmanager
def syncing(model: DistributedDataParallel, wanted: bool) -> Iterator[None]:
    """A context in which backward reduces gradients over ranks, or only adds them up here."""
    before, model.require_backward_grad_sync = model.require_backward_grad_sync, wanted
    try:
        yield
    finally:
        model.require_backward_grad_sync = before


def explain(layout: Layout) -> list[str]:
    """One sentence: what is replicated, and why."""
    return [f"{layout}: ddp keeps the whole model on each of {layout.dp_replicate} ranks, since dp_shard=1"]
