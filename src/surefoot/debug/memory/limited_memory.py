"""A training with a memory limit: follows every live tensor, to say at an out-of-memory error what held the memory.

It books storages like the plan does (`meters/memory.py`), and also keeps the line of user code that made each.
"""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from surefoot.debug.errors.batch_lines import batch_lines
from surefoot.debug.errors.stack import place, spots
from surefoot.debug.memory.keepers import keepers_of, retains_graph
from surefoot.debug.memory.out_of_memory import asked_bytes, is_out_of_memory, said
from surefoot.events.callers import nearest_line
from surefoot.events.failsafe import Failsafe
from surefoot.events.forked import only_here
from surefoot.events.listener import Listener
from surefoot.events.phases import Phases
from surefoot.meters import allocator
from surefoot.meters.memory import MemoryMeter, tensor_text
from surefoot.meters.memory_book import Booking
from surefoot.meters.memory_limit import memory_limit
from surefoot.meters.meter import Operators, linear_as_ever
from surefoot.records.out_of_memory import Batch, Held, LiveTensor, OutOfMemory, elements
from surefoot.trees import tensors_in
from surefoot.world import cuda
from surefoot.world.kernels import Kernel

if TYPE_CHECKING:
    from typing_extensions import Self

LARGEST = 12
"""How many groups of equal tensors are kept by name."""
OUTSIDE = "outside the step"
"""The account of counted bytes that no operator of the training made or read: data that is loaded ahead, caches."""
_GROWN = 3
"""After how many batches, each larger than the one before, they are said to grow."""
_STANDING = ("parameters", "buffers", "gradients", "optimizer", "averages")


class LimitedMemory(Listener):
    """Limits and follows the memory of a training while entered. `failure` is what it saw at the last error.

    Without `follow` it only limits: compiled code would run as single operators if they were followed.
    """

    def __init__(self, limit_bytes: int, device: torch.device, *, follow: bool = True) -> None:
        self.limit_bytes, self.device, self.follows = limit_bytes, device, follow
        self.aside = allocator.aside if device.type == "cpu" else nullcontext
        """A context for what surefoot itself allocates, which is not the training's."""
        self.snapshot: Path | None = None
        """Where a GPU's own snapshot goes."""
        self.phases = Phases()
        self.failsafe = Failsafe(on=True, doing="following memory")
        self.memory = MemoryMeter(self.phases, _NoKernels())
        self.memory.book.followers.append(self._booked)
        self.failure: OutOfMemory | None = None
        self._operators = Operators(
            [self.memory], shards_seen=self.phases.shards_seen, failsafe=self.failsafe, failed=self._failed
        )
        self._lines: dict[Booking, tuple[str, int]] = {}
        self._entered = ExitStack()
        self._updates, self._updating = 0, list[torch.optim.Optimizer]()
        self._shapes: tuple[str, ...] = ()
        self._seen: Counter[tuple[str, ...]] = Counter()
        self._peaks: dict[tuple[str, ...], int] = {}
        self._sizes: list[int] = []
        self._forwards: Counter[int] = Counter()
        self._called: dict[tuple[str, int], None] = {}
        self._retained: tuple[str, int] | None = None
        self._outside = 0

    def __enter__(self) -> Self:
        self._entered.enter_context(memory_limit(self.limit_bytes, self.device))
        if not self.follows:
            return self
        self.failsafe.aside = self.aside
        heard = [self.failsafe.listener(each) for each in (self.memory, self)]
        self.phases.listeners += heard
        self._entered.enter_context(self.phases)
        self._entered.enter_context(linear_as_ever(self._operators))
        self._entered.enter_context(only_here(self._operators))
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def know(self, model: torch.nn.Module, averages: dict[str, torch.Tensor] | None = None) -> None:
        """Registers a model before its first forward, and the moving averages of its parameters."""
        if self.follows:
            self.phases.find(model)
            self.memory.know_averages(averages or {})

    def step_begins(self) -> None:
        """Call it before the data of a step is loaded. What is live then and is no state of the training is data."""
        if not self.follows:
            return
        standing = sum(each.size for each in self.memory.book.live() if each.account in _STANDING)
        self._outside = max(0, self._live_bytes() - standing)
        self._shapes = ()

    # ------------------------------------------------------------------------------------------------- events

    def forward_begins(self, model: torch.nn.Module) -> None:
        self._shapes = ()
        if torch.is_grad_enabled():
            self._forwards[id(model)] += 1
            if line := nearest_line():
                self._called[line] = None

    def backward_begins(self, losses: Any) -> None:
        if (line := nearest_line()) and retains_graph(*line):
            self._retained = line

    def backward_ends(self) -> None:
        self._forwards.clear()
        self._called.clear()

    def module_begins(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if not self._shapes and self.phases.segment.name in ("forward", "evaluate"):
            self._shapes = tuple(map(tensor_text, tensors_in(args)))  # a model called by keywords: its first module

    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        self._updating = [optimizer]

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        self._updating = []
        self._forwards.clear()
        self._called.clear()
        self._updates += 1
        self.memory.accounts()
        self._seen[self._shapes] += 1
        self._sizes = [*self._sizes[-2:], elements(self._shapes)]
        peak = self.memory.book.peak.peak_bytes
        self._peaks[self._shapes] = max(peak, self._peaks.get(self._shapes, 0))

    def _booked(self, booking: Booking) -> None:
        if not booking.live:
            self._lines.pop(booking, None)
        elif line := nearest_line():
            self._lines[booking] = line

    # ------------------------------------------------------------------------------------------------- the failure

    def _failed(self, func: Any, error: Exception) -> None:
        """Notes what is live, at the operator that failed: backward lets go of much while the error passes."""
        if is_out_of_memory(error) and not self._is_noted(error):
            self.failsafe.callback(self._note)(error, str(func))

    def _is_noted(self, error: BaseException) -> bool:
        return self.failure is not None and self.failure.message == said(error)

    def seen_at(self, error: BaseException) -> OutOfMemory | None:
        """What was live at an out-of-memory error; as it is now if no operator of this thread raised it."""
        if self.follows and not self._is_noted(error):
            self.failsafe.callback(self._note)(error, "")
        if not self._is_noted(error):
            return None
        if self.follows:
            self.failsafe.callback(self._note_lines)(error)
        return self.failure

    def _note(self, error: BaseException, operator: str) -> None:
        if self.device.type == "cuda" and self.snapshot is not None:
            cuda.dump_snapshot(str(self.snapshot))
        phase = self.phases.now().name
        self._settle(phase)
        live = self.memory.book.live()
        refused = allocator.refusal() if self.device.type == "cpu" else None
        total = self._live_bytes() if refused is None else refused.live_bytes
        line = nearest_line()
        self.failure = OutOfMemory(
            error=type(error).__name__,
            message=said(error),
            asked_bytes=asked_bytes(said(error)),
            live_bytes=total,
            limit_bytes=self.limit_bytes,
            device=str(self.device),
            step=self._updates + 1 if self.phases.models else 0,
            phase=phase,
            module=self.phases.module(),
            operator=operator,
            place=place(*line) if line else None,
            followed=True,
            held=_held(live, total),
            largest=self._largest(live),
            batch=self._batch(),
            forwards=max(self._forwards.values(), default=0),
            forward_places=tuple(place(*each) for each in self._called),
            retained=None if self._retained is None else place(*self._retained),
            outside_bytes=self._outside,
        )

    def _note_lines(self, error: BaseException) -> None:
        """Adds what the frames of the error say: the variables that keep tensors, and the lines that made the batch."""
        assert self.failure is not None
        followed, stack = self.memory.followed(), spots(error)
        kept = {id(storage) for storage, each in followed if isinstance(each, Booking) and _is_kept(each)}

        def is_kept(tensor: torch.Tensor) -> bool:
            return tensor.layout == torch.strided and id(tensor.untyped_storage()) in kept

        self.failure = replace(
            self.failure,
            keepers=keepers_of(stack, is_kept),
            batch=replace(self.failure.batch, made=batch_lines(stack)),
        )

    def _settle(self, phase: str) -> None:
        """Books what the accounts of unfinished work are going to be."""
        memory = self.memory
        if phase in ("forward", "loss"):
            memory.book.settle_born_in(("forward", "loss"), "activations")
        memory.backward_ends()
        for optimizer in self._updating:
            memory.update_ends(optimizer)
        if not self.phases.models:  # a model that is being built
            for each in gc.get_objects():
                if issubclass(type(each), torch.nn.Parameter):
                    memory.settle(each, "parameters", "")

    def _live_bytes(self) -> int:
        return cuda.held_bytes(self.device) if self.device.type == "cuda" else allocator.live_bytes()

    def _largest(self, live: list[Booking]) -> tuple[LiveTensor, ...]:
        groups: dict[tuple[Any, ...], list[Booking]] = defaultdict(list)
        for each in live:
            made = each.account, each.module, each.born.name, each.operator, each.tensor
            groups[(self._lines.get(each), _is_kept(each), *made)].append(each)
        found = [_live_tensor(line, is_kept, held) for (line, is_kept, *_), held in groups.items()]
        return tuple(sorted(found, key=lambda each: -each.bytes)[:LARGEST])

    def _batch(self) -> Batch:
        usual = self._seen.most_common(1)
        if not usual:
            return Batch(self._shapes)
        sizes = [*self._sizes, elements(self._shapes)]
        grows = len(sizes) > _GROWN and all(one < next_ for one, next_ in pairwise(sizes))
        return Batch(self._shapes, usual[0][0], self._updates, self._peaks[usual[0][0]], grows)


def _live_tensor(line: tuple[str, int] | None, is_kept: bool, held: list[Booking]) -> LiveTensor:
    first = held[0]
    return LiveTensor(
        sum(each.size for each in held),
        len(held),
        account=first.account,
        module=first.module,
        phase=first.born.name,
        operator=first.operator,
        tensor=first.tensor,
        kept_steps=len({each.outlived for each in held}) if is_kept else 0,
        place=place(*line) if line else None,
    )


def _is_kept(booking: Booking) -> bool:
    """Whether a forward or loss of an earlier step made it, though it is no state of the training."""
    made = booking.born.name in ("forward", "loss") and booking.account in ("activations", "temporary")
    return made and booking.outlived > 0


def _held(live: list[Booking], total: int) -> tuple[Held, ...]:
    amounts: dict[tuple[str, str, str], int] = defaultdict(int)
    for each in live:
        amounts[each.account, each.module, each.born.name] += each.size
    missing = total - sum(amounts.values())
    if missing > 0:
        amounts[OUTSIDE, "", ""] = missing
    return tuple(Held(*key, size) for key, size in sorted(amounts.items(), key=lambda item: -item[1]))


class _NoKernels:
    """The counting allocator sees the temporary memory of kernels: it need not be measured."""

    def __init__(self) -> None:
        self.too_large: set[Any] = set()
        self.unknown: set[str] = set()
        self.sparse: dict[Any, Kernel] = {}

    def measured(self, func: Any, args: Any, kwargs: Any) -> None:
        return None
