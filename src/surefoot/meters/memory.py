"""Memory: which storages are live, what they are for, and which module made them.

A storage is booked once, however many views it has, from the operator that returned it until it is
freed. Its purpose may become known later, so accounts are settled when the step is closed:

| account       | a storage that                                                              |
|---------------|-----------------------------------------------------------------------------|
| `parameters`  | holds a parameter of the model                                              |
| `buffers`     | holds a buffer of the model                                                 |
| `gradients`   | is a parameter's `.grad` at the end of a backward                           |
| `optimizer`   | is in the optimizer's state at the end of an update                         |
| `averages`    | holds the moving average of a parameter                                     |
| `inputs`      | was loaded and is live when a forward begins, or existed before and is used |
| `activations` | was made by forward or loss and is live when their backward begins          |
| `offloaded`   | waits in host memory for backward; on a GPU it takes none of the device's   |
| `temporary`   | is none of these                                                            |
| `workspace`   | an operator's kernel takes and gives back inside itself                     |

If parameters are sharded, `parameters`, `gradients` and `optimizer` are this rank's shards. There are also:

| account                 | a storage that                                                    |
|-------------------------|-------------------------------------------------------------------|
| `unsharded-parameters`  | holds a whole parameter, gathered from all ranks                  |
| `unsharded-gradients`   | is the gradient of a whole parameter, before it is reduced        |
| `communication`         | a collective reads from or writes to, and is none of these        |

The data set is not part of the step: storages that existed before and are only read while loading are not booked.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch

from surefoot.events.listener import Segment
from surefoot.events.phases import Phases
from surefoot.meters.journal import Journal, Noted
from surefoot.meters.memory_book import OFFLOADED, Booking, MemoryBook
from surefoot.meters.meter import Meter
from surefoot.records.tally import Account
from surefoot.torch_inside.autograd import gives_one_twice, running_node, scatters_gradients, sums_gradients
from surefoot.torch_inside.sparse import LAYOUTS, parts_of
from surefoot.trees import plain, tensors_in
from surefoot.world.host_memory import transfer
from surefoot.world.kernels import AnyKernels


class MemoryMeter(Meter):
    """Follows storages from the operator that returned them until they are freed, and updates its book."""

    def __init__(self, phases: Phases, kernels: AnyKernels, journal: Journal | None = None) -> None:
        self.phases, self.kernels = phases, kernels
        self.book: Any = MemoryBook(phases.segment) if journal is None else journal
        self.owners: MutableMapping[torch.Tensor, str] = {}
        """The module of every parameter."""
        self._bookings: dict[int, Booking | Noted] = {}
        self._purposes: dict[int, tuple[str, str, str]] = {}
        """Of every followed storage: account, module and tensor as they were last known."""
        self._nodes: dict[int, int] = {}
        """Of every storage that a backward made: the number of the graph node that was running."""
        self._weak: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self.counts: Callable[[torch.Tensor], bool] = has_memory
        """Whether a tensor is on the device whose memory is booked."""
        self.modes_above = 0
        """Dispatch modes that see an operator before the meters, and hand it on."""
        self._viewed: dict[int, torch.UntypedStorage] = {}
        """Of a storage that is a view of another: that one. See `_see_view`."""
        self._streams = {torch.cpu.current_stream(): 0}
        """Streams in the order of their first use; the first is that of the computation."""

    def operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        outside_step = self.phases.now().name in ("init", "load", "between")
        foreign = set()
        for tensor in _stored([args, kwargs]):
            if not outside_step:
                self._book(tensor, "inputs", "")
            elif id(self._storage(tensor)) not in self._bookings:
                foreign.add(id(self._storage(tensor)))
        if getattr(func, "is_view", False):
            self._see_view(args[0], out)
        if self._would_be_written(func, args):
            self._free(id(args[0].untyped_storage()))  # without a mode, the result would be written over it
        account = OFFLOADED if transfer() == "to_host" else "temporary"
        for tensor in _stored(out):
            if id(self._storage(tensor)) not in foreign:
                self._book(tensor, account, str(func))
        if func.namespace in ("fsdp", "c10d"):
            self._see_communication(func.overloadpacket.__name__, args, kwargs)
        kernel = self.kernels.measured(func, args, kwargs)
        for tensor in kernel.kept if kernel is not None else ():
            self.settle(tensor, "workspace", "")
        if kernel is not None and kernel.workspace_bytes:
            self.phases.now()
            self.book.book_workspace(kernel.workspace_bytes, self.phases.module(), str(func))

    def _see_view(self, viewed: torch.Tensor, out: Any) -> None:
        """A view of a small real tensor among fakes gets a storage of its own. Its memory is that of the viewed one."""
        if viewed.layout is not torch.strided or id(base := self._storage(viewed)) not in self._bookings:
            return
        for tensor in _stored(out):
            storage = tensor.untyped_storage()
            key = id(storage)
            if storage is not base and key not in self._bookings and key not in self._viewed:
                self._viewed[key] = base
                self._weak[key] = weakref.ref(storage, lambda _, key=key: self._gone(key))  # type: ignore[misc]

    def _storage(self, tensor: torch.Tensor) -> torch.UntypedStorage:
        """The storage that holds a tensor's memory."""
        storage = tensor.untyped_storage()
        return self._viewed.get(id(storage), storage)

    def _see_communication(self, name: str, args: Any, kwargs: Any) -> None:
        """Settles the tensors that FSDP gathers and reduces, and the buffers of in-place collectives."""
        if name == "split_with_sizes_copy":
            self._settle_temporary(kwargs["out"], "unsharded-parameters")
        elif name == "chunk_cat":
            self._settle_temporary(args[0], "unsharded-gradients")
        self._settle_temporary([args, kwargs], "communication")

    def _settle_temporary(self, tree: Any, account: str) -> None:
        for tensor in tensors_in(tree):
            known, module, _ = self._purposes.get(id(tensor.untyped_storage()), ("", "", ""))
            if known == "temporary":
                self.settle(tensor, account, module)

    def _would_be_written(self, func: Any, args: Any) -> bool:
        """Whether backward would write a result over its first operand, if no dispatch mode were on.

        Autograd adds the result of a node to that of another one, or two results of one node for the same tensor. What
        a node makes for itself and adds, as that of `cholesky` does, it adds out of place. It scatters in place.
        """
        if scatters_gradients(func):
            return self._is_of_node(args[0])
        return sums_gradients(func, args, self.modes_above) and (not self._is_of_node(args[0]) or gives_one_twice())

    def _is_of_node(self, tensor: torch.Tensor) -> bool:
        """Whether the graph node that is running made a tensor."""
        return self._nodes.get(id(tensor.untyped_storage())) == running_node()

    def rng_saved(self, state: torch.Tensor) -> None:
        self._book(state, "temporary", "get_rng_state")

    def see(self, batch: Any) -> None:
        """Books a batch that was loaded unseen by the meter."""
        for tensor in tensors_in(batch):
            for inner in plain(tensor):
                self._book(inner, "inputs", "")

    def resized(self, storage: torch.UntypedStorage) -> None:
        key = id(storage)
        booking = self._bookings.pop(key, None)
        if booking is not None:
            self.book.free(booking)
        if storage.nbytes():
            self.phases.now()
            account, module, tensor = self._purposes.get(key, ("temporary", self.phases.module(), ""))
            booked = self.book.book(storage.nbytes(), account, module, "resize_", tensor, self._stream())
            self.follow(storage, booked)

    def followed(self) -> list[tuple[torch.UntypedStorage, Booking | Noted]]:
        """The storages that are booked now, and their bookings."""
        found = ((self._weak[key](), booking) for key, booking in self._bookings.items())
        return [(storage, booking) for storage, booking in found if storage is not None]

    def follow(self, storage: torch.UntypedStorage, booking: Booking | Noted) -> None:
        """Follows a storage that is already booked, under this booking."""
        key = id(storage)
        self._bookings[key] = booking
        self._weak[key] = weakref.ref(storage, lambda _: self._gone(key))

    def let_go(self) -> None:
        """Stops following all storages. The book does not change."""
        self._bookings.clear()
        self._purposes.clear()
        self._viewed.clear()
        self._nodes.clear()
        self._weak.clear()

    def model_found(self, model: torch.nn.Module, prefix: str) -> None:
        for name, parameter in model.named_parameters():
            self.owners[parameter] = (prefix + name).rpartition(".")[0]
            self.settle(parameter, "parameters", self.owners[parameter])
        for name, buffer in model.named_buffers():
            self.settle(buffer, "buffers", (prefix + name).rpartition(".")[0])

    def know_averages(self, averages: Mapping[str, torch.Tensor]) -> None:
        """Books the moving averages of parameters, by the names of the parameters."""
        for name, tensor in averages.items():
            self.settle(tensor, "averages", name.rpartition(".")[0])

    def entered(self, segment: Segment) -> None:
        self.book.enter(segment)

    def forward_begins(self, model: torch.nn.Module) -> None:
        self.book.settle_born_in(("load", "init"), "inputs")

    def backward_begins(self, losses: Any) -> None:
        self.book.settle_born_in(("forward", "loss"), "activations")

    def backward_ends(self) -> None:
        for parameter, owner in self.owners.items():
            if parameter.grad is not None:
                self.settle(parameter.grad, "gradients", owner)

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        for parameter, state in optimizer.state.items():
            for tensor in tensors_in(state):
                self.settle(tensor, "optimizer", self.owners.get(parameter, ""))

    def accounts(self) -> list[Account]:
        accounts: list[Account] = self.book.accounts()
        return accounts

    def _book(self, tensor: torch.Tensor, account: str, operator: str) -> Booking | Noted | None:
        storage = self._storage(tensor)
        booking = self._bookings.get(id(storage))
        if booking is not None or storage.nbytes() == 0 or not self.counts(tensor):
            return booking
        module, _ = self.phases.module(), self.phases.now()
        named = tensor_text(tensor)
        booking = self.book.book(storage.nbytes(), account, module, operator, named, self._stream())
        self.follow(storage, booking)
        self._purposes[id(storage)] = account, module, named
        if (node := running_node()) != -1:
            self._nodes[id(storage)] = node
        return booking

    def _stream(self) -> int:
        return self._streams.setdefault(torch.cpu.current_stream(), len(self._streams))

    def _gone(self, key: int) -> None:
        self._purposes.pop(key, None)
        self._viewed.pop(key, None)
        self._nodes.pop(key, None)
        self._free(key)

    def _free(self, key: int) -> None:
        self._weak.pop(key, None)
        booking = self._bookings.pop(key, None)
        if booking is not None:
            self.book.free(booking)

    def settle(self, tensor: torch.Tensor, account: str, module: str) -> None:
        """Sets the account and module of a tensor's storage when its purpose becomes known. Books it if it is new."""
        for inner in plain(tensor):
            booking = self._book(inner, account, "")
            if booking is not None:
                self.book.settle(booking, account, module)
                key = id(self._storage(inner))
                self._purposes[key] = account, module, self._purposes.get(key, ("", "", ""))[2]


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor takes memory: one on `meta` has a shape only, in a plan as in a real step."""
    device: torch.device = getattr(tensor, "fake_device", None) or tensor.device
    return device.type != "meta"


def tensor_text(tensor: torch.Tensor) -> str:
    """`float32[8, 64]`."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _stored(tree: Any) -> Iterator[torch.Tensor]:
    """The tensors of a tree that have one storage, and the parts of sparse ones."""
    for tensor in tensors_in(tree):
        if tensor.layout is torch.strided:
            yield tensor
        elif tensor.layout in LAYOUTS:
            yield from parts_of(tensor)
