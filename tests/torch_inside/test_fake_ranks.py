"""Fake ranks: chunks and meshes as torch makes them, and nothing left of a world that has ended."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

import surefoot
from surefoot.torch_inside.fake_ranks import Chunks, fake_ranks


@pytest.mark.parametrize(("size", "count"), [(8, 4), (7, 4), (5, 4), (3, 8), (1, 3)])
def test_a_rank_s_own_chunk_is_the_one_that_fsdp_would_take(size: int, count: int):
    from torch.distributed.fsdp._fully_shard._fsdp_param import _chunk_with_empty

    tensor = torch.arange(size * 3).view(size, 3)
    theirs, ours = _chunk_with_empty(tensor, count, dim=0), Chunks(tensor, count, dim=0)
    assert len(ours) == len(theirs) == count
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True)), (
        "torch's fully_shard cuts parameters otherwise than Chunks in fake_ranks.py"
    )


@pytest.mark.skipif(not hasattr(DeviceMesh, "_concatenate"), reason="since torch 2.10")
def test_a_mesh_of_fake_ranks_is_made_once_and_is_what_torch_makes():
    from torch.distributed.device_mesh import init_device_mesh

    plain = DeviceMesh.__getitem__, DeviceMesh._concatenate
    with surefoot.fake_world(ranks=8):
        mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp_replicate", "dp_shard", "tp"))
        data = mesh["dp_replicate", "dp_shard"]
        whole = DeviceMesh._concatenate([data, mesh["tp"]])
        assert data is mesh["dp_replicate", "dp_shard"]
        assert whole is DeviceMesh._concatenate([data, mesh["tp"]])
        assert data == plain[0](mesh, ("dp_replicate", "dp_shard"))
        assert whole == plain[1]([data, mesh["tp"]]) == mesh
    assert (DeviceMesh.__getitem__, DeviceMesh._concatenate) == plain


@pytest.mark.parametrize("ranks", [2, 8])
def test_a_model_is_sharded_over_fake_ranks_and_the_next_world_starts_anew(ranks: int):
    from torch.distributed.fsdp import fully_shard

    with surefoot.fake_world(ranks=ranks):
        model = fully_shard(nn.Linear(16, 16))
        assert model.weight.to_local().shape == (16 // ranks, 16)
        model(torch.ones(2, 16)).sum().backward()
        assert model.weight.grad.to_local().shape == (16 // ranks, 16)
    assert not dist.is_initialized()


def test_collectives_of_fake_ranks_keep_their_shapes():
    with fake_ranks(4):
        mine = torch.ones(2)
        dist.all_reduce(mine)
        assert mine.shape == (2,)
        assert dist.get_world_size() == 4
