"""Notes that ranks exchange. At a given moment each rank writes its notes and reads those of the others."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from surefoot.torch_inside.collectives import default_store

AGREE_SECONDS = 60.0
"""How long a rank waits for the others to say the same."""


def tell(notes: dict[str, Any], *, at: int | str) -> None:
    """Writes this rank's notes to the store of the process group, where other ranks find them."""
    if dist.get_backend() != "fake":
        default_store().set(f"surefoot/{at}/{dist.get_rank()}", json.dumps(notes))


def told(*, at: int | str, wait_seconds: float) -> list[dict[str, Any]]:
    """Waits for the notes of all other ranks. Returns none if a rank did not write in time."""
    if dist.get_backend() == "fake":
        return []
    store, others = default_store(), []
    for rank in range(dist.get_world_size()):
        if rank != dist.get_rank():
            try:
                store.wait([f"surefoot/{at}/{rank}"], timedelta(seconds=wait_seconds))
            except RuntimeError:
                return []
            others.append(json.loads(store.get(f"surefoot/{at}/{rank}")))
    return others


def all_ranks(mine: bool, *, wait_seconds: float = AGREE_SECONDS) -> bool:
    """Whether this holds on every rank. They say so by the store of torchrun: the process group may be closed.

    False if a rank does not say so in time, and on several ranks that torchrun did not start.
    """
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks == 1 or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return mine and ranks == 1
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    keys = [f"surefoot/all/{attempt}/{rank}" for rank in range(ranks)]
    ends = time.monotonic() + wait_seconds
    try:
        store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
        store.set(keys[int(os.environ["RANK"])], str(mine))
        while mine and time.monotonic() < ends:
            said = [store.get(key) if store.check([key]) else None for key in keys]
            if b"False" in said or None not in said:
                return b"False" not in said
            time.sleep(0.1)
    except (RuntimeError, LookupError, ValueError):
        pass
    return False
