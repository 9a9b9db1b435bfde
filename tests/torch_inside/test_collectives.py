"""The store and the groups of ranks are found, and DTensor infers shapes where no mode sees it."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

import surefoot
from surefoot.torch_inside.collectives import default_store, finished, group_of, hide_inferred_shapes
from surefoot.torch_inside.fake_ranks import fake_ranks
from surefoot.torch_inside.modes import TorchDispatchMode


def test_the_store_of_the_default_group_is_found():
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        default_store().set("name", "value")
        assert default_store().get("name") == b"value"
    finally:
        dist.destroy_process_group()


def test_a_group_is_found_by_its_name_and_by_its_object():
    seen = []

    class Seeing(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            named = (
                args[-1:] if "functional" in func.namespace else [each for each in args if not isinstance(each, str)]
            )
            seen.extend(found for each in named if (found := group_of(each)) is not None)
            return func(*args, **(kwargs or {}))

    with surefoot.fake_world(ranks=2), Seeing():
        dist.all_reduce(torch.ones(2))
        torch.distributed._functional_collectives.all_reduce(torch.ones(2), "sum", dist.group.WORLD)
    assert [each.size() for each in seen] == [2, 2]


def test_finished_work_has_its_tensors():
    with fake_ranks(2):
        work = torch.distributed.Work.unbox(finished([torch.ones(2)]))
        assert work.is_completed()


def test_dtensor_infers_shapes_unseen():
    def operators() -> list[str]:
        seen = []

        class Seeing(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                if any(hasattr(kind, "__tensor_flatten__") for kind in types):
                    return NotImplemented
                seen.append(func.overloadpacket.__name__)
                return func(*args, **(kwargs or {}))

        with fake_ranks(2):
            mesh = init_device_mesh("cpu", (2,))
            sharded = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
            with Seeing():
                sharded.exp()
        return seen

    plain = operators()
    restore = hide_inferred_shapes()
    hidden = operators()
    restore()
    assert hidden == ["exp"], "DTensor runs other operators than those of its own shard"
    assert operators() == plain
