"""Kineto: steps under torch.profiler, with their phases and modules written into the trace."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function

from surefoot.costs.trace_time import MODULE, PHASE, STEP
from surefoot.events.listener import Listener, Segment
from surefoot.events.phases import Phases
from surefoot.world import cuda


class _Marks(Listener):
    """Writes a mark when a phase begins. The mark is a number, since the phase's name may be known only later."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []

    def entered(self, segment: Segment) -> None:
        with record_function(f"{PHASE}{len(self.segments)}"):
            self.segments.append(segment)


def traced(
    step: Callable[[], object], model: torch.nn.Module, file: Path, *, times: int, inside: Mapping[torch.nn.Module, str]
) -> dict[str, str]:
    """Takes steps under the profiler and writes the trace to a file. Returns the names of its phases, by number.

    `inside` are the modules to mark in the trace, with their names.
    """
    marks = _Marks()
    with Phases(model) as phases, _ranges(inside), ExitStack() as entered:
        phases.listeners.append(marks)
        with _quiet():  # the profiler prints to stderr at any log level
            profiler = entered.enter_context(torch.profiler.profile(activities=_activities()))
        for _ in range(times):
            with record_function(STEP):
                marks.entered(phases.segment)
                step()
        with _quiet():
            entered.close()
    profiler.export_chrome_trace(str(file))
    return {str(number): segment.name for number, segment in enumerate(marks.segments)}


def read_trace(file: Path) -> dict[str, Any]:
    """A trace as torch's profiler wrote it; its events are in `traceEvents`."""
    trace: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return trace


def write_named(trace: dict[str, Any], phases: Mapping[str, str], file: Path) -> None:
    """Writes a trace with the names of its phases and modules, for people to look at. The trace itself is renamed."""
    for event in trace["traceEvents"]:
        name = event.get("name", "")
        if name.startswith(PHASE):
            event["name"] = f"phase: {phases[name.removeprefix(PHASE)]}"
        elif name.startswith(MODULE):
            event["name"] = name.removeprefix(MODULE) or "model"
    file.write_text(json.dumps(trace), encoding="utf-8")


def _activities() -> list[ProfilerActivity]:
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda.is_there() else [])]


@contextmanager
def _ranges(names: Mapping[torch.nn.Module, str]) -> Iterator[None]:
    """A range in the trace for every call of these modules."""
    open_ranges: list[Any] = []

    def begins(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            open_ranges.append(record_function(MODULE + name))
            open_ranges[-1].__enter__()

        return hook

    def ends(*_: Any) -> None:
        open_ranges.pop().__exit__(None, None, None)

    with ExitStack() as hooks:
        for module, name in names.items():
            hooks.callback(module.register_forward_pre_hook(begins(name)).remove)
            hooks.callback(module.register_forward_hook(ends, always_call=True).remove)
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences the process's stderr."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
