"""Memory book: bookings and their events as plain data; finds the peak of a step and of each of its phases."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from surefoot.events.listener import Segment
from surefoot.records.tally import Account
from surefoot.records.usage import Holding, Peak, Timeline

HOLDINGS = 5
"""How many of the largest storages at the peak are kept by name."""
MOMENTS = 100
"""The most moments of a step in a timeline."""
OFFLOADED = "offloaded"
"""The account of what waits in host memory."""


class Booking:
    """One storage: its bytes, account, tensor and stream, and the module and operator that made it."""

    __slots__ = (
        "account", "born", "live", "module", "number", "on_host", "operator", "outlived", "size", "stream", "tensor",
    )  # fmt: skip

    def __init__(
        self, size: int, account: str, module: str, operator: str, tensor: str, born: Segment, stream: int = 0
    ) -> None:
        self.size, self.account, self.module, self.operator = size, account, module, operator
        self.tensor, self.born, self.live, self.number = tensor, born, True, 0
        self.stream = stream
        """0 is that of the computation; a GPU's allocator keeps blocks of different streams apart."""
        self.on_host = False
        """Whether it waits in the memory of the host, and is no part of the device's."""
        self.outlived = 0
        """How many steps after its own it has outlived."""


class Chapter(NamedTuple):
    """What happened between two closings of the book: the storages that were live before, then every event.

    An event is a storage, the segment in which it is booked or freed (its second event), and the operator. An event
    without a storage begins a segment.
    """

    carried: tuple[Booking, ...]
    events: tuple[tuple[Booking | None, Segment, str], ...]


class MemoryBook:
    """Keeps `memory/ACCOUNT/MODULE`: the bytes live at the step's peak."""

    def __init__(self, segment: Segment) -> None:
        self.followers: list[Callable[[Booking], None]] = []
        """Called with every storage when it is booked, and again when it is freed.

        What is freed at once is told in the order in which it was booked: autocast, for one, lets go of the weights it
        has cast in an order that differs from run to run.
        """
        self.peak = Peak()
        self.largest: tuple[Holding, ...] = ()
        self.phase_peaks: dict[str, Peak] = {}
        self.timeline = Timeline()
        self.rounded_bytes = 0
        """What pinned memory takes beside the storages at the peak: its blocks are powers of 2."""
        self.chapters: list[Chapter] | None = None
        """Set it to a list to keep all events: every closing adds a chapter."""
        self.host: MemoryBook | None = None
        """The book of host memory, if that is apart from the memory of the device."""
        self._segment = segment
        self._live: dict[Booking, None] = {}
        self._carried: list[Booking] = []
        self._events: list[tuple[Booking | None, Segment, str]] = []
        self._unsettled: list[Booking] = []
        self._freed: list[Booking] = []
        self._numbers = itertools.count()

    def enter(self, segment: Segment) -> None:
        """Starts a segment of a phase. A segment without allocations has a peak too."""
        self._segment = segment
        self._events.append((None, segment, ""))
        if self.host is not None:
            self.host.enter(segment)

    def book(self, size: int, account: str, module: str, operator: str, tensor: str, stream: int = 0) -> Booking:
        """Books a new storage."""
        if account == OFFLOADED and self.host is not None:
            waiting = self.host.book(size, account, module, operator, tensor)
            waiting.on_host = True
            return waiting
        if self._freed:
            self._tell_freed()
        booking = Booking(size, account, module, operator, tensor, self._segment, stream)
        booking.number = next(self._numbers)
        self._live[booking] = None
        self._events.append((booking, self._segment, operator))
        for follow in self.followers:
            follow(booking)
        if account == "temporary":
            self._unsettled.append(booking)
        return booking

    def free(self, booking: Booking) -> None:
        """Removes a storage."""
        if booking.on_host and self.host is not None:
            booking.on_host = False
            self.host.free(booking)
            return
        booking.live = False
        del self._live[booking]
        self._events.append((booking, self._segment, ""))
        self._freed.append(booking)

    def _tell_freed(self) -> None:
        for booking in sorted(self._freed, key=lambda booking: booking.number):
            for follow in self.followers:
                follow(booking)
        self._freed.clear()

    def settle(self, booking: Booking, account: str, module: str) -> None:
        """Sets the account and module of a storage when its purpose becomes known."""
        booking.account, booking.module = account, module

    def settle_born_in(self, phases: tuple[str, ...], account: str) -> None:
        """Assigns an account to live storages that were made in these phases and have none yet."""
        waiting, self._unsettled = self._unsettled, []
        for booking in waiting:
            if not booking.live or booking.account != "temporary":
                continue
            if booking.born.name in phases:
                booking.account = account
            else:
                self._unsettled.append(booking)

    def book_workspace(self, size: int, module: str, operator: str) -> None:
        """Books the temporary bytes of a kernel: live together with its results, then freed."""
        booking = Booking(size, "workspace", module, operator, "", self._segment)
        self._events += [(booking, self._segment, operator), (booking, self._segment, "")]
        self._tell_freed()
        for follow in self.followers:
            follow(booking)
            follow(booking)

    def live(self) -> list[Booking]:
        """The live bookings, oldest first."""
        return list(self._live)

    def accounts(self) -> list[Account]:
        """The step's peak by account and module. `peak` and `phase_peaks` hold where it was."""
        self._tell_freed()
        live_at_peak = self._replay()
        self.rounded_bytes = sum((1 << (each.size - 1).bit_length()) - each.size for each in live_at_peak)
        amounts: dict[str, int] = defaultdict(int)
        for booking in live_at_peak:
            amounts[f"memory/{booking.account}/{booking.module}".rstrip("/")] += booking.size
        self.largest = tuple(map(_holding, sorted(live_at_peak, key=lambda booking: -booking.size)[:HOLDINGS]))
        kept = [Account(f"kept/{each.born.name}/{each.operator}", 1, "tensors") for each in self._outlived()]
        if self.chapters is not None:
            self.chapters.append(Chapter(tuple(self._carried), tuple(self._events)))
        self._carried = self.live()
        self._events.clear()
        self._unsettled = [booking for booking in self._unsettled if booking.live]
        booked = [Account(name, amount, "bytes") for name, amount in amounts.items()]
        return [*booked, *kept, *(_of_host(self.host) if self.host is not None else ())]

    def _outlived(self) -> list[Booking]:
        """Storages that one operator made in the forward or loss of several earlier steps, and that are still live.

        Storages of only one step are a cache, for example a mask that the first forward keeps.
        """
        found: dict[tuple[str, str], list[Booking]] = defaultdict(list)
        for each in self._carried:
            each.outlived += 1
            if each.live and each.born.name in ("forward", "loss") and each.account in ("activations", "temporary"):
                found[each.born.name, each.operator].append(each)
        growing = (kept for kept in found.values() if len({each.outlived for each in kept}) > 1)
        return [each for kept in growing for each in kept]

    def _replay(self) -> list[Booking]:
        """Finds the peak of the step and of each phase. Returns the bookings that were live at the step's peak."""
        present, running = set(self._carried), None
        live = highest = sum(booking.size for booking in self._carried)
        at, self.phase_peaks = -1, {}
        levels: dict[int, int] = {}
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
            levels[index] = live
            self._raise_peak(Peak(live, segment.name, booking.module, operator))
            if live > highest:
                highest, at = live, index
        self.peak = max(self.phase_peaks.values(), key=lambda peak: peak.peak_bytes, default=Peak(live))
        return self._live_after(at, _moments(levels, at))

    def _raise_peak(self, peak: Peak) -> None:
        before = self.phase_peaks.get(peak.phase)
        if before is None or peak.peak_bytes > before.peak_bytes:
            self.phase_peaks[peak.phase] = peak

    def _live_after(self, index: int, moments: list[int]) -> list[Booking]:
        """The bookings that were live after an event. Also writes the timeline."""
        present, found = dict.fromkeys(self._carried), list(self._carried)
        amounts: dict[str, int] = defaultdict(int)
        for carried in present:
            amounts[carried.account] += carried.size
        wanted, snapshots = set(moments), []
        for number, (booking, segment, _) in enumerate(self._events):
            if booking is not None and booking in present:  # the second event of a storage is its end
                del present[booking]
                amounts[booking.account] -= booking.size
            elif booking is not None:
                present[booking] = None
                amounts[booking.account] += booking.size
            if number in wanted:
                snapshots.append((segment.name, dict(amounts)))
            if number == index:
                found = list(present)
        self.timeline = _timeline(snapshots, moments.index(index) if index in wanted else 0)
        return found


def _moments(levels: dict[int, int], at: int) -> list[int]:
    """The events to show: the allocation with the highest level in each of `MOMENTS` intervals, and the peak.

    Frees are not shown: the order of storages that are freed together is arbitrary.
    """
    highest: dict[int, int] = {}
    for number, (index, level) in enumerate(levels.items()):
        stretch = number * MOMENTS // len(levels)
        if level > levels[highest.setdefault(stretch, index)] or index == at:
            highest[stretch] = index
    return list(highest.values())


def _timeline(snapshots: list[tuple[str, dict[str, int]]], peak: int) -> Timeline:
    names = sorted({name for _, amounts in snapshots for name, amount in amounts.items() if amount})
    accounts = {name: tuple(amounts.get(name, 0) for _, amounts in snapshots) for name in names}
    return Timeline(tuple(phase for phase, _ in snapshots), accounts, peak)


def _of_host(book: MemoryBook) -> Iterator[Account]:
    """The peak of host memory by account and module, and what pinned blocks take beside their tensors."""
    for each in book.accounts():
        if each.name.startswith("memory/"):
            yield Account(each.name.replace("memory/", "host/", 1), each.amount, each.unit)
    if book.rounded_bytes:
        yield Account("host/pinned-blocks", book.rounded_bytes, "bytes")


def _holding(booking: Booking) -> Holding:
    made = booking.born.name, booking.operator, booking.tensor
    return Holding(booking.size, booking.account, booking.module, *made)
