"""Times each distinct operator call of a step on this machine.

A script is replayed in order, several times. Each round runs and times one call of every place: in the first round its
first call, then its second, and so on. The calls just before it run too, untimed, as far back as a core's cache
reaches. For all other calls only memory is allocated. So a timed call finds its operands as in the real step: in the
cache if they were just written, else out of it, at addresses that the allocator chose in the same way.
None of the step's own code runs: no module, no autograd, no optimizer. The numbers are random.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch

from surefoot.meters.operator_script import Call, Freed, Operand, Script
from surefoot.records.usage import Timed
from surefoot.trees import tensors_in
from surefoot.world.kernels import for_real

SECONDS, LEAST_ROUNDS, MOST_ROUNDS = 3.0, 9, 60
"""For how long, and how often, a script is replayed. The first round warms libraries up and does not count."""

WARM_BYTES = 4 << 20
"""A generous size of a core's own cache. The calls that run before a timed call touch this many bytes."""

NOISE = 1 << 16
"""How many random numbers are drawn once and then repeated: too many for a branch predictor to learn."""


class Rehearsal:
    """Runs the last step of a script call by call. `clock` is read before and after each timed call."""

    def __init__(self, script: Script, *, clock: Callable[[], float]) -> None:
        self.clock, self.rounds = clock, 0
        self._events, self._known = script.steps[-1], script.known
        self._places: dict[Any, list[int]] = {}
        for index, event in enumerate(self._events):
            if isinstance(event, Call):
                self._places.setdefault(event.place, []).append(index)
        self._seconds: dict[Any, list[float]] = {place: [] for place in self._places}
        self._live: dict[int, torch.UntypedStorage] = {}
        self._noise: dict[torch.dtype, torch.Tensor] = {}

    def go_through(self) -> None:
        """Replays the script once."""
        timed = {calls[self.rounds % len(calls)] for calls in self._places.values()}
        run = timed.union(*(self._before(index) for index in timed))
        with for_real():
            for index, event in enumerate(self._events):
                if isinstance(event, Freed):
                    self._live.pop(event.storage, None)
                elif index in run:
                    self._run(event, timed=index in timed and self.rounds > 0)
                else:
                    self._make(event)
        self.rounds += 1

    def timed(self) -> tuple[Timed, ...]:
        """Every place, with the median seconds of its timed calls."""
        return tuple(
            call.timed(len(calls), _median(self._seconds[place]))
            for place, calls in self._places.items()
            if isinstance(call := self._events[calls[0]], Call)
        )

    def _before(self, index: int) -> list[int]:
        """The calls just before this one whose data may still be in the cache."""
        found, touched = [], 0
        while index > 0 and touched < WARM_BYTES:
            index -= 1
            event = self._events[index]
            if isinstance(event, Call):
                found.append(index)
                touched += event.bytes_touched
        return found

    def _run(self, call: Call, *, timed: bool) -> None:
        args, kwargs = _with_tensors(self._tensor, (call.args, call.kwargs))
        with torch.set_grad_enabled(call.with_gradients):
            began = self.clock()
            try:
                out = call.func(*args, **kwargs)
            except (RuntimeError, IndexError):  # this operator refuses random numbers
                self._make(call)
                return
            seconds = self.clock() - began
        if timed:
            self._seconds[call.place].append(seconds)
        for operand, tensor in zip(call.results, tensors_in(out), strict=False):
            storage = tensor.untyped_storage()
            if operand.storage not in self._live and storage.nbytes() == operand.storage_bytes:
                self._fill(storage, operand.dtype)
                self._live[operand.storage] = storage
        self._make(call)

    def _make(self, call: Call) -> None:
        """Allocates memory for results that have none yet."""
        for operand in call.results:
            self._storage(operand)

    def _tensor(self, operand: Operand) -> torch.Tensor:
        made = torch.empty(0, dtype=operand.dtype)
        return made.set_(self._storage(operand), operand.offset, operand.shape, operand.stride)

    def _storage(self, operand: Operand) -> torch.UntypedStorage:
        if operand.storage not in self._live:
            if operand.storage in self._known:
                storage = self._known[operand.storage].clone()
            else:
                storage = torch.zeros(operand.storage_bytes, dtype=torch.uint8).untyped_storage()
                self._fill(storage, operand.dtype)
            self._live[operand.storage] = storage
        return self._live[operand.storage]

    def _fill(self, storage: torch.UntypedStorage, dtype: torch.dtype) -> None:
        """Fills a storage of floats with random numbers. Computed values would soon be infinite or zero."""
        if not dtype.is_floating_point:
            return
        if dtype not in self._noise:
            self._noise[dtype] = torch.rand(NOISE).to(dtype)
        numbers = torch.empty(0, dtype=dtype).set_(storage)
        whole = numbers.numel() // NOISE * NOISE
        numbers[:whole].view(-1, NOISE).copy_(self._noise[dtype])
        numbers[whole:].copy_(self._noise[dtype][: numbers.numel() - whole])


def rehearse(script: Script | None, *, clock: Callable[[], float]) -> tuple[Timed, ...]:
    """Every place in a script's last step, with the seconds of one call."""
    if script is None:
        raise ValueError("the trace was made without a script")
    rehearsal = Rehearsal(script, clock=clock)
    began = clock()
    while rehearsal.rounds < LEAST_ROUNDS or (rehearsal.rounds < MOST_ROUNDS and clock() - began < SECONDS):
        rehearsal.go_through()
    return rehearsal.timed()


def _median(seconds: list[float]) -> float | None:
    return statistics.median(seconds) if seconds else None


def _with_tensors(tensor: Callable[[Operand], torch.Tensor], tree: Any) -> Any:
    if isinstance(tree, Operand):
        return tensor(tree)
    if isinstance(tree, dict):
        return {name: _with_tensors(tensor, item) for name, item in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_with_tensors(tensor, item) for item in tree)
    return tree
