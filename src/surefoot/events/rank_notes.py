"""Notes that ranks exchange. At a given moment each rank writes its notes and reads those of the others."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import torch.distributed as dist


def tell(notes: dict[str, Any], *, at: int | str) -> None:
    """Writes this rank's notes to the store of the process group, where other ranks find them."""
    if dist.get_backend() != "fake":
        dist.distributed_c10d._get_default_store().set(f"surefoot/{at}/{dist.get_rank()}", json.dumps(notes))


def told(*, at: int | str, wait_seconds: float) -> list[dict[str, Any]]:
    """Waits for the notes of all other ranks. Returns none if a rank did not write in time."""
    if dist.get_backend() == "fake":
        return []
    store, others = dist.distributed_c10d._get_default_store(), []
    for rank in range(dist.get_world_size()):
        if rank != dist.get_rank():
            try:
                store.wait([f"surefoot/{at}/{rank}"], timedelta(seconds=wait_seconds))
            except RuntimeError:
                return []
            others.append(json.loads(store.get(f"surefoot/{at}/{rank}")))
    return others
