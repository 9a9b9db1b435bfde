"""Traffic: every collective, by kind, dimension of the mesh, phase and module; and the FLOPs that can overlap it.

The bytes booked are those of the whole tensor: the result of an all-gather, the input of a reduce-scatter, the tensor
that an all-reduce sums. In a ring of n ranks, each rank sends (n - 1) / n of them, and twice that for an all-reduce.

| account                                     | unit  | what it is                                                    |
|---------------------------------------------|-------|---------------------------------------------------------------|
| `traffic/all-gather/dp_shard/forward/MODULE` | bytes | what is gathered                                              |
| `collectives/all-gather/dp_shard/forward`    | times | in how many calls                                             |
| `overlap/all-gather/dp_shard/forward`        | FLOP  | what may be computed while they run, each counted by itself   |

A collective may begin once its stream has nothing left to wait for. It ends, at the latest, when the computation waits
for it. Computation between the two can hide it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from surefoot.events.collectives import group_of
from surefoot.events.phases import Phases
from surefoot.meters.flops import FlopsMeter
from surefoot.meters.journal import Journal
from surefoot.meters.meter import Meter
from surefoot.meters.streams import Streams
from surefoot.records.tally import Account
from surefoot.trees import tensors_in

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

KINDS = {
    "_allgather_base_": "all-gather",
    "allgather_": "all-gather",
    "all_gather_into_tensor": "all-gather",
    "_reduce_scatter_base_": "reduce-scatter",
    "reduce_scatter_": "reduce-scatter",
    "reduce_scatter_tensor": "reduce-scatter",
    "allreduce_": "all-reduce",
    "all_reduce": "all-reduce",
    "all_reduce_": "all-reduce",
    "broadcast_": "broadcast",
    "broadcast": "broadcast",
    "alltoall_": "all-to-all",
    "alltoall_base_": "all-to-all",
    "all_to_all_single": "all-to-all",
    "scatter_": "scatter",
    "gather_": "gather",
    "reduce_": "reduce",
    "send": "send",
    "recv_": "receive",
    "wait_tensor": "wait",
}
"""The kinds of collectives, by torch's names: in-place and functional ones."""


def kind_of(func: Any) -> str | None:
    """The kind of collective that an operator is. None if it is not a collective."""
    return KINDS.get(func.overloadpacket.__name__) if func.namespace in ("c10d", "_c10d_functional") else None


class Collective:
    """A collective that the computation has not waited for yet."""

    def __init__(self, kind: str, dimension: str, phase: Any, began: int) -> None:
        self.kind, self.dimension, self.phase, self.began = kind, dimension, phase, began


class TrafficMeter(Meter):
    """Books `traffic/KIND/DIMENSION/PHASE/MODULE`, the number of calls, and the FLOPs that can overlap."""

    def __init__(self, phases: Phases, flops: FlopsMeter, journal: Journal | None = None) -> None:
        self.phases, self.flops, self.book = phases, flops, self if journal is None else journal
        self.streams = Streams(lambda: flops.executed, self._ended)
        self._bytes: dict[tuple[str, str, Any, str], int] = defaultdict(int)
        self._times: dict[tuple[str, str, Any], int] = defaultdict(int)
        self._overlap: dict[tuple[str, str, Any], int] = defaultdict(int)
        self._results: dict[int, Collective] = {}
        """Functional collectives by the storage of their result, which is waited for by name."""
        self._open: dict[Collective, None] = {}
        self._all = "all"

    def know(self, mesh: DeviceMesh | None) -> None:
        """Finds the mesh dimension that holds all ranks: it uses the default group."""
        for dimension, name in enumerate((mesh and mesh.mesh_dim_names) or ()):
            if mesh is not None and mesh.size(dimension) == mesh.size():
                self._all = name

    def operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        kind = kind_of(func)
        if kind == "wait":
            self._ended(frozenset([self._results.pop(id(args[0].untyped_storage()), None)]))
        elif kind is not None:
            functional = func.namespace == "_c10d_functional"
            size = max(_bytes(each) for each in ([*args, out] if functional else args))
            group = group_of(args)
            started = self._start(kind, self._all if group == "all" else group, size)
            if functional:
                self._results[id(out.untyped_storage())] = started
            elif self.streams.computing() and args[-1] is False:  # asyncOp: the computation waits at once
                self._ended(frozenset([started]))

    def _start(self, kind: str, dimension: str, size: int) -> Collective:
        phase = self.phases.now()
        self.book.count_traffic(kind, dimension, phase, self.phases.module(), size)
        started = Collective(kind, dimension, phase, self.streams.now().computed)
        self._open[started] = None
        if not self.streams.computing():
            self.streams.issue(started)
        return started

    def _ended(self, awaited: frozenset[Any]) -> None:
        ended = [each for each in self._open if each in awaited]
        for each in ended:
            del self._open[each]
            amount = self.flops.executed - each.began
            self.book.count_overlap(each.kind, each.dimension, each.phase, amount, together=len(ended) > 1)

    def backward_ends(self) -> None:
        self._ended(frozenset(self._open))  # DDP waits for its buckets here

    def count_traffic(self, kind: str, dimension: str, phase: Any, module: str, size: int) -> None:
        """Adds a collective of `size` bytes."""
        self._bytes[kind, dimension, phase, module] += size
        self._times[kind, dimension, phase] += 1

    def count_overlap(self, kind: str, dimension: str, phase: Any, amount: int, *, together: bool = False) -> None:
        """Adds FLOPs that can be computed during a collective."""
        self._overlap[kind, dimension, phase] += amount

    def accounts(self) -> list[Account]:
        booked = [
            *(
                Account(f"traffic/{kind}/{dimension}/{phase.name}/{module}".rstrip("/"), size, "bytes")
                for (kind, dimension, phase, module), size in self._bytes.items()
            ),
            *(_account("collectives", place, times, "times") for place, times in self._times.items()),
            *(_account("overlap", place, amount, "FLOP") for place, amount in self._overlap.items() if amount),
        ]
        for counted in (self._bytes, self._times, self._overlap):
            counted.clear()
        return booked


def _account(name: str, place: tuple[str, str, Any], amount: int, unit: str) -> Account:
    kind, dimension, phase = place
    return Account(f"{name}/{kind}/{dimension}/{phase.name}", amount, unit)


def _bytes(operand: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in([operand]))
