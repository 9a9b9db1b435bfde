"""Streams: tracks when a stream waits for the computation, and when the computation waits for a stream.

On a GPU, FSDP issues its collectives on separate streams. They run in parallel with the computation until one waits
for the other. On a CPU the same code runs with streams that do nothing; here they are tracked while entered.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from surefoot.torch_inside.patches import patch

if TYPE_CHECKING:
    from typing_extensions import Self


class Moment:
    """A point of a stream: the computation and the work that are certainly done before it."""

    def __init__(self, computed: int, work: frozenset[Any] = frozenset()) -> None:
        self.computed, self.work = computed, work

    def after(self, other: Moment) -> Moment:
        return Moment(max(self.computed, other.computed), self.work | other.work)


class Streams:
    """Tracks `torch.cpu`'s streams. Calls `awaited` with all work that the computation has just waited for."""

    def __init__(self, computed: Callable[[], int], awaited: Callable[[frozenset[Any]], None]) -> None:
        self._computed, self._awaited = computed, awaited
        self._moments: WeakKeyDictionary[torch.cpu.Stream, Moment] = WeakKeyDictionary()
        self._compute = torch.cpu.current_stream()
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        self._compute = torch.cpu.current_stream()
        self._patch(torch.cpu.Stream, "wait_stream", self._wait_stream)
        self._patch(torch.cpu.Stream, "wait_event", self._wait_event)
        self._patch(torch.cpu.Stream, "record_event", self._record_event)
        self._patch(torch.cpu.Event, "record", self._record)
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def computing(self) -> bool:
        """Whether the current stream is that of the computation."""
        return torch.cpu.current_stream() is self._compute

    def now(self) -> Moment:
        """The current point of the current stream."""
        return self._now(torch.cpu.current_stream())

    def issue(self, work: Any) -> None:
        """Adds work to the current stream."""
        stream = torch.cpu.current_stream()
        self._moments[stream] = self._now(stream).after(Moment(0, frozenset([work])))

    def _now(self, stream: torch.cpu.Stream) -> Moment:
        return Moment(self._computed()) if stream is self._compute else self._moments.get(stream, Moment(0))

    def _wait(self, stream: torch.cpu.Stream, moment: Moment) -> None:
        if stream is self._compute:
            self._awaited(moment.work)
        else:
            self._moments[stream] = self._now(stream).after(moment)

    def _wait_stream(self, stream: torch.cpu.Stream, other: torch.cpu.Stream) -> None:
        self._wait(stream, self._now(other))

    def _wait_event(self, stream: torch.cpu.Stream, event: Any) -> None:
        self._wait(stream, getattr(event, "moment", Moment(0)))

    def _record_event(self, stream: torch.cpu.Stream) -> torch.cpu.Event:
        event: Any = torch.cpu.Event()
        event.moment = self._now(stream)
        return event

    def _record(self, event: Any, stream: torch.cpu.Stream | None = None) -> None:
        event.moment = self._now(stream or torch.cpu.current_stream())

    def _patch(self, owner: type, name: str, method: Callable[..., Any]) -> None:
        self._entered.callback(patch(owner, name, lambda _: lambda *args: method(*args)))
