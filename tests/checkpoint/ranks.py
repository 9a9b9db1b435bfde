"""Ranks in processes of their own: they save a sharded state, load it into other shards, and fail on one rank.

python -m tests.checkpoint.ranks FOLDER
"""

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from surefoot.checkpoint import files
from surefoot.checkpoint.store import Checkpoints
from surefoot.errors import CheckpointError


def whole() -> dict[str, torch.Tensor]:
    """What the shards are of; 7 rows do not divide evenly, 1 row leaves a rank with nothing."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"rows": (7, 3), "columns": (4, 6), "one": (1, 5), "copied": (3,), "plain": (5,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def sharded(tensors: dict[str, torch.Tensor], mesh: DeviceMesh) -> dict[str, torch.Tensor]:
    places = {"rows": Shard(0), "columns": Shard(1), "one": Shard(0), "copied": Replicate()}
    return {
        name: distribute_tensor(each, mesh, [places[name]]) if name in places else each
        for name, each in tensors.items()
    }


def save(checkpoints: Checkpoints, mesh: DeviceMesh) -> None:
    checkpoints.save(3, {"model": sharded(whole(), mesh), "lr": 0.5})
    checkpoints.close()


def load(checkpoints: Checkpoints, mesh: DeviceMesh) -> None:
    into = sharded({name: torch.zeros_like(each) for name, each in whole().items()}, mesh)
    newest = checkpoints.newest()
    assert newest is not None
    assert newest.step == 3
    loaded = newest.load({"model": into})
    assert loaded["lr"] == 0.5
    for name, tensor in whole().items():
        found = loaded["model"][name]
        assert found is into[name]
        assert torch.equal(found.full_tensor() if hasattr(found, "full_tensor") else found, tensor), name


def fail(checkpoints: Checkpoints, mesh: DeviceMesh) -> None:
    """The last rank cannot write; all of them must hear of it, and none may hang."""
    if dist.get_rank() == dist.get_world_size() - 1:

        def broken(*_, **__):
            raise OSError(5, "Input/output error")

        files.open = broken
    checkpoints.save(4, {"model": sharded(whole(), mesh)})
    with pytest.raises(CheckpointError, match=r"rank 1: __1_0.distcp could not be written: Input/output error"):
        checkpoints.close()
    dist.barrier()
    assert [path.name for path in checkpoints.folder.glob("*step-*")] == ["step-000000003"]


def on_ranks(work: Callable[[Checkpoints, DeviceMesh], None], folder: Path, ranks: int) -> None:
    """Forks the ranks and waits for them."""
    meeting = folder.parent / f"{work.__name__}-{ranks}"
    pids = [os.fork() or run(work, folder, rank, ranks, meeting) for rank in range(ranks)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    if any(codes):
        raise SystemExit(f"{work.__name__} on {ranks} ranks ended with {codes}")


def run(work: Callable[[Checkpoints, DeviceMesh], None], folder: Path, rank: int, ranks: int, meeting: Path) -> int:
    try:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
        work(Checkpoints(folder), init_device_mesh("cpu", (ranks,)))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.parent.mkdir(parents=True, exist_ok=True)
    for work, ranks in ((save, 2), (load, 2), (load, 3), (fail, 2)):
        on_ranks(work, where, ranks)
