"""DDP with the same buckets in every step, which resumed runs need."""

from __future__ import annotations

from torch import nn
from torch.distributed import ProcessGroup
from torch.nn.parallel import DistributedDataParallel


class Replicas(DistributedDataParallel):
    """DDP with the same buckets in every step: the last parameters first.

    torch 2.13 reduces all gradients of the first step together, then sorts them into buckets. The order in which three
    or more ranks are summed depends on the place in a bucket, so a resumed run would get different bits.
    """

    def __init__(self, model: nn.Module, group: ProcessGroup, bucket_cap_mb: float | None = None) -> None:
        super().__init__(model, process_group=group, gradient_as_bucket_view=True, bucket_cap_mb=bucket_cap_mb)
        self.reducer._push_all_rebuilt_params()
        self.reducer._rebuild_buckets()

    def _build_params_for_reducer(self) -> tuple[list[nn.Parameter], list[bool]]:
        parameters, sparse = super()._build_params_for_reducer()  # type: ignore[no-untyped-call]
        return parameters[::-1], sparse[::-1]
