"""The parts of DDP that keep its buckets the same are there; four ranks test what they do, in test_ranks.py."""

from torch.distributed import Reducer
from torch.nn.parallel import DistributedDataParallel


def test_torch_still_has_what_fixes_the_buckets_of_ddp():
    parts = [(Reducer, "_push_all_rebuilt_params"), (Reducer, "_rebuild_buckets")]
    parts.append((DistributedDataParallel, "_build_params_for_reducer"))
    missing = [f"{owner.__name__}.{name}" for owner, name in parts if not hasattr(owner, name)]
    assert not missing, f"torch has lost {missing}, with which torch_inside/ddp.py keeps a run's buckets the same"
