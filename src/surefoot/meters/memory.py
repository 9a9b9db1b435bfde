"""Memory: which storages are live, what they are for, and who made them.

A storage is booked once, however many views it has, from the operator that returned it until it is
freed. What it is for can become known later, so accounts are settled when the step is closed:

| account       | a storage that                                                              |
|---------------|-----------------------------------------------------------------------------|
| `parameters`  | holds a parameter of the model                                              |
| `buffers`     | holds a buffer of the model                                                 |
| `gradients`   | is a parameter's `.grad` at the end of a backward                           |
| `optimizer`   | is in the optimizer's state at the end of an update                         |
| `inputs`      | was loaded and is live when a forward begins, or existed before and is used |
| `activations` | was made by forward or loss and is live when their backward begins          |
| `temporary`   | is none of these                                                            |
| `workspace`   | an operator's kernel takes and gives back inside itself                     |

A data set that samples are cut from is no part of the step: what existed before and is only read while
loading is not booked.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from surefoot.kernels import Kernels
from surefoot.meters.meter import Meter
from surefoot.phases import Phases, Segment, sums_gradients
from surefoot.records.tally import Account
from surefoot.records.usage import Holding, Peak
from surefoot.trees import tensors_in

HOLDINGS = 5
"""How many of the largest storages at the peak are kept by name."""


class Booking:
    """One storage: its bytes, its account, the module and operator that made it, and for which tensor."""

    __slots__ = ("account", "born", "live", "module", "operator", "size", "tensor", "weak")

    def __init__(self, size: int, account: str, module: str, operator: str, born: Segment) -> None:
        self.size, self.account, self.module, self.operator, self.born = size, account, module, operator, born
        self.live, self.tensor = True, ""
        self.weak: weakref.ref[torch.UntypedStorage] | None = None


class MemoryMeter(Meter):
    """Books `memory/ACCOUNT/MODULE`: the bytes live at the step's peak."""

    def __init__(self, phases: Phases, kernels: Kernels) -> None:
        self.phases, self.kernels = phases, kernels
        self.followers: list[Callable[[Booking], None]] = []
        """Called with every storage when it is booked, and again when it is freed."""
        self.peak = Peak()
        self.largest: tuple[Holding, ...] = ()
        self.phase_peaks: dict[str, Peak] = {}
        self._bookings: dict[int, Booking] = {}
        self._carried: list[Booking] = []
        self._events: list[tuple[Booking | None, Segment, str]] = []
        self._unsettled: list[Booking] = []
        self._owners: dict[torch.Tensor, str] = {}

    def operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        outside_step = self.phases.now().name in ("init", "load", "between")
        foreign = set()
        for tensor in tensors_in([args, kwargs]):
            if not outside_step:
                self._book(tensor, "inputs", "")
            elif id(tensor.untyped_storage()) not in self._bookings:
                foreign.add(id(tensor.untyped_storage()))
        if sums_gradients(func, args):
            self._free(id(args[0].untyped_storage()))  # without a mode, the sum would be written over it
        for tensor in tensors_in(out):
            if id(tensor.untyped_storage()) not in foreign:
                self._book(tensor, "temporary", str(func))
        kernel = self.kernels.measured(func, args, kwargs)
        for tensor in kernel.kept if kernel is not None else ():
            self._settle(tensor, "workspace", "")
        if kernel is not None and kernel.workspace_bytes:
            self._book_workspace(kernel.workspace_bytes, str(func))

    def rng_saved(self, state: torch.Tensor) -> None:
        self._book(state, "temporary", "get_rng_state")

    def see(self, batch: Any) -> None:
        """Books a batch that was loaded outside the meter's sight."""
        for tensor in tensors_in(batch):
            self._book(tensor, "inputs", "")

    def model_found(self, model: torch.nn.Module, prefix: str) -> None:
        for name, parameter in model.named_parameters():
            self._owners[parameter] = (prefix + name).rpartition(".")[0]
            self._settle(parameter, "parameters", self._owners[parameter])
        for name, buffer in model.named_buffers():
            self._settle(buffer, "buffers", (prefix + name).rpartition(".")[0])

    def entered(self, segment: Segment) -> None:
        self._events.append((None, segment, ""))  # a phase that allocates nothing has a peak too

    def forward_begins(self, model: torch.nn.Module) -> None:
        self._settle_unsettled(("load", "init"), "inputs")

    def backward_begins(self, losses: Any) -> None:
        self._settle_unsettled(("forward", "loss"), "activations")

    def backward_ends(self) -> None:
        for parameter, owner in self._owners.items():
            if parameter.grad is not None:
                self._settle(parameter.grad, "gradients", owner)

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        for parameter, state in optimizer.state.items():
            for tensor in tensors_in(state):
                self._settle(tensor, "optimizer", self._owners.get(parameter, ""))

    def accounts(self) -> list[Account]:
        """The step's peak by account and module; `peak` and `phase_peaks` say when it was."""
        live_at_peak = self._replay()
        amounts: dict[str, int] = defaultdict(int)
        for booking in live_at_peak:
            amounts[f"memory/{booking.account}/{booking.module}".rstrip("/")] += booking.size
        self.largest = tuple(map(_holding, sorted(live_at_peak, key=lambda booking: -booking.size)[:HOLDINGS]))
        self._carried = [booking for booking in self._bookings.values() if booking.live]
        self._events.clear()
        self._unsettled = [booking for booking in self._unsettled if booking.live]
        return [Account(name, amount, "bytes") for name, amount in amounts.items()]

    def _book(self, tensor: torch.Tensor, account: str, operator: str) -> Booking | None:
        storage = tensor.untyped_storage()
        key = id(storage)
        booking = self._bookings.get(key)
        if booking is not None or storage.nbytes() == 0:
            return booking
        booking = Booking(storage.nbytes(), account, self.phases.module(), operator, self.phases.now())
        booking.tensor = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        booking.weak = weakref.ref(storage, lambda _: self._free(key))
        self._bookings[key] = booking
        self._events.append((booking, booking.born, operator))
        for follow in self.followers:
            follow(booking)
        if account == "temporary":
            self._unsettled.append(booking)
        return booking

    def _book_workspace(self, size: int, operator: str) -> None:
        """Bytes that a kernel takes and gives back: there beside its results, and gone."""
        segment = self.phases.now()
        booking = Booking(size, "workspace", self.phases.module(), operator, segment)
        self._events += [(booking, segment, operator), (booking, segment, "")]
        for follow in self.followers:
            follow(booking)
            follow(booking)

    def _free(self, key: int) -> None:
        booking = self._bookings.pop(key, None)
        if booking is None:
            return
        booking.live = False
        self._events.append((booking, self.phases.segment, ""))
        for follow in self.followers:
            follow(booking)

    def _settle(self, tensor: torch.Tensor, account: str, module: str) -> None:
        booking = self._book(tensor, account, "")
        if booking is not None:
            booking.account, booking.module = account, module

    def _settle_unsettled(self, born: tuple[str, ...], account: str) -> None:
        waiting, self._unsettled = self._unsettled, []
        for booking in waiting:
            if not booking.live or booking.account != "temporary":
                continue
            if booking.born.name in born:
                booking.account = account
            else:
                self._unsettled.append(booking)

    def _replay(self) -> list[Booking]:
        """Finds the peak of the step and of each phase, and returns what was live at the step's."""
        present, running = set(self._carried), None
        live = highest = sum(booking.size for booking in self._carried)
        at, self.phase_peaks = -1, {}
        for index, (booking, segment, operator) in enumerate(self._events):
            if segment is not running:
                running = segment
                self._raise_peak(Peak(live, segment.name))
            if booking is None:
                continue
            if booking in present:
                present.remove(booking)
                live -= booking.size
                continue
            present.add(booking)
            live += booking.size
            self._raise_peak(Peak(live, segment.name, booking.module, operator))
            if live > highest:
                highest, at = live, index
        self.peak = max(self.phase_peaks.values(), key=lambda peak: peak.peak_bytes, default=Peak(live))
        return self._live_after(at)

    def _raise_peak(self, peak: Peak) -> None:
        before = self.phase_peaks.get(peak.phase)
        if before is None or peak.peak_bytes > before.peak_bytes:
            self.phase_peaks[peak.phase] = peak

    def _live_after(self, index: int) -> list[Booking]:
        """What was live after an event: an event of a storage not yet present is its birth, else its end."""
        present = dict.fromkeys(self._carried)
        for booking, _, _ in self._events[: index + 1]:
            if booking is None:
                continue
            if booking in present:
                del present[booking]
            else:
                present[booking] = None
        return list(present)


def _holding(booking: Booking) -> Holding:
    made = booking.born.name, booking.operator, booking.tensor
    return Holding(booking.size, booking.account, booking.module, *made)
