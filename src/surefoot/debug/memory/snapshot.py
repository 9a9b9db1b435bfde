"""Books a CUDA memory snapshot: live bytes by account, phase and module, and free bytes by segment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from surefoot.debug.memory.allocation_stacks import UNKNOWN, Told, told_by
from surefoot.debug.memory.snapshot_file import read_snapshot
from surefoot.errors import RunError
from surefoot.records.out_of_memory import Held, LiveTensor
from surefoot.records.snapshot import MemorySnapshot, Refused, SegmentUse

LARGEST, EMPTIEST = 12, 5
MOST_BLOCKS = 5_000_000
"""The most blocks and trace entries that are looked at. A small file can refer to one list very often."""
MOST_FRAMES = 1000
_LIVE, _AWAITING, _FREE = "active_allocated", "active_awaiting_free", "inactive"
_STATES = (_LIVE, _AWAITING, "active_pending_free", _FREE)


def booked_snapshot(file: Path) -> MemorySnapshot:
    """Reads and books a snapshot."""
    return _Books(file, read_snapshot(file)).record()


class _Books:
    def __init__(self, file: Path, snapshot: dict[str, Any]) -> None:
        self.file, self._looked = file, 0
        self._traces = [each for each in _lists(snapshot.get("device_traces")) if isinstance(each, list)]
        self._categories = self._categories_of()
        self._segments = [each for each in snapshot["segments"] if isinstance(each, dict)]
        self._groups: dict[tuple[Told, int], int] = defaultdict(int)
        self._sums: dict[str, int] = defaultdict(int)
        self._uses = [self._segment(each) for each in self._segments]

    def record(self) -> MemorySnapshot:
        amounts: dict[tuple[str, str, str], int] = defaultdict(int)
        for (told, size), count in self._groups.items():
            amounts[told.account, told.module, told.phase] += size * count
        unknown = [(size, count) for (told, size), count in self._groups.items() if told.account == UNKNOWN]
        return MemorySnapshot(
            file=str(self.file),
            segments=len(self._segments),
            blocks=self._sums["blocks"],
            reserved_bytes=self._sums["reserved"],
            requested_bytes=self._sums["requested"],
            rounding_bytes=self._sums["rounding"],
            awaiting_bytes=self._sums["awaiting"],
            fragmented_bytes=self._sums["fragmented"],
            cached_bytes=self._sums["cached"],
            uncovered_bytes=self._sums["uncovered"],
            held=tuple(Held(*key, size) for key, size in sorted(amounts.items(), key=lambda item: -item[1])),
            largest=self._largest(),
            unattributed_bytes=sum(size * count for size, count in unknown),
            unattributed_blocks=sum(count for _, count in unknown),
            without_stack_blocks=self._sums["without stack"],
            emptiest=tuple(sorted((each for each in self._uses if each.free_bytes), key=_emptiest)[:EMPTIEST]),
            refused=self._refused(),
            notes=self._notes(),
        )

    def _segment(self, segment: dict[str, Any]) -> SegmentUse:
        total, address = _number(segment, "total_size"), _number(segment, "address")
        free = list[int]()
        covered = live = count = 0
        for block in self._each(segment.get("blocks")):
            size, state = _number(block, "size"), block.get("state")
            if state not in _STATES:
                raise RunError(f"{self.file}: a block has the state {state!r}; known: {', '.join(_STATES)}")
            address, count, covered = _number(block, "address", address), count + 1, covered + size
            if state == _FREE:
                free.append(size)
            elif state == _LIVE:
                live += 1
                self._live(block, size, address)
            else:
                live += 1
                self._sums["awaiting"] += size
            address += size
        self._sums["blocks"] += count
        self._sums["reserved"] += total
        self._sums["fragmented" if live else "cached"] += sum(free)
        self._sums["uncovered"] += max(0, total - covered)
        start = _number(segment, "address")
        return SegmentUse(_number(segment, "device"), start, total, sum(free), max(free, default=0), count)

    def _live(self, block: dict[str, Any], size: int, address: int) -> None:
        frames, requested = _frames_of(block), _number(block, "requested_size", size)
        for old in _lists(block.get("history"))[:1]:  # snapshots of torch 2.0
            if isinstance(old, dict):
                frames, requested = _frames_of(old), _number(old, "real_size", size)
        told = told_by(frames[:MOST_FRAMES], self._categories.get(address, ""))
        self._sums["requested"] += min(requested, size)
        self._sums["rounding"] += size - min(requested, size)
        self._sums["without stack"] += not frames
        self._groups[told, min(requested, size)] += 1

    def _largest(self) -> tuple[LiveTensor, ...]:
        found = sorted(self._groups.items(), key=lambda item: -item[0][1] * item[1])[:LARGEST]
        return tuple(
            LiveTensor(size * count, count, told.account, told.module, told.phase, told.operator, "", place=told.place)
            for (told, size), count in found
        )

    def _categories_of(self) -> dict[int, str]:
        """For each address the category of its last allocation, if the trace has categories."""
        found: dict[int, str] = {}
        for trace in self._traces:
            for entry in self._each(trace):
                if entry.get("action") == "alloc" and isinstance(entry.get("category"), str):
                    found[_number(entry, "addr")] = entry["category"]
        return found

    def _refused(self) -> Refused | None:
        last = None
        for trace in self._traces:
            last = next((e for e in reversed(trace) if isinstance(e, dict) and e.get("action") == "oom"), last)
        if last is None:
            return None
        free = _number(last, "device_free") if "device_free" in last else None
        return Refused(_number(last, "size"), free, told_by(_frames_of(last)[:MOST_FRAMES]).place)

    def _notes(self) -> tuple[str, ...]:
        without = self._sums["without stack"]
        if not without:
            return ()
        return (
            f"{without:,} live blocks have no stack: torch.cuda.memory._record_memory_history() must run before they "
            "are made",
        )

    def _each(self, items: Any) -> Iterator[dict[str, Any]]:
        """The dicts of a list."""
        for item in _lists(items):
            self._looked += 1
            if self._looked > MOST_BLOCKS:
                raise RunError(f"{self.file} lists more than {MOST_BLOCKS:,} blocks and events: too many to read")
            if isinstance(item, dict):
                yield item


def _lists(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _frames_of(block: dict[str, Any]) -> list[Any]:
    return _lists(block.get("frames"))


def _number(holder: dict[str, Any], name: str, usual: int = 0) -> int:
    value = holder.get(name, usual)
    return value if isinstance(value, int) and 0 <= value < 2**63 else usual


def _emptiest(use: SegmentUse) -> int:
    return -use.free_bytes
