"""Reads from a Chrome trace where the time of traced steps went: by phase, module and operator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from surefoot.records.tally import Account, Tally

STEP, PHASE, MODULE = "surefoot.step", "surefoot.phase:", "surefoot.module:"
"""The marks in a trace: a whole step; the start of a phase, by number; a running module, by name."""
OUTSIDE, PYTHON = "(outside modules)", "python"
"""The module for time outside all modules, and the operator for time outside all operators."""
_ENGINE = "autograd::engine::evaluate_function: "


@dataclass
class _Frame:
    """A running event: its end, module and operator."""

    end: float
    module: str
    operator: str


def spent(events: Iterable[Mapping[str, Any]], phases: Mapping[str, str]) -> Tally:
    """Seconds as `time/PHASE/MODULE/OPERATOR`: counts every moment of the steps in a trace once, all steps together.

    `phases` maps the number of a stretch to its phase. A moment belongs to the innermost running operator, and in
    backward to the module whose forward made the node.
    """
    found = sorted(_on_the_threads_of_the_step(events), key=lambda each: (each["ts"], -each["dur"]))
    sweep = _Sweep(_makers(found), phases)
    for event in found:
        sweep.begin(event)
    sweep.advance(float("inf"))
    booked = (Account(f"time/{'/'.join(key)}", amount / 1e6, "seconds") for key, amount in sweep.booked.items())
    return Tally.of(booked)


class _Sweep:
    """Goes through the events in order of time, and books the time between two events to what ran."""

    def __init__(self, makers: Mapping[int, str], phases: Mapping[str, str]) -> None:
        self.makers, self.phases = makers, phases
        self.booked: dict[tuple[str, str, str], float] = defaultdict(float)
        self._stack: list[_Frame] = []
        self._now, self._phase, self._last_module = 0.0, "", OUTSIDE

    def begin(self, event: Mapping[str, Any]) -> None:
        self.advance(event["ts"])
        name = event["name"]
        if name.startswith(PHASE):
            self._phase = self.phases[name.removeprefix(PHASE)]
        elif name == STEP:
            self._stack.append(_Frame(event["ts"] + event["dur"], OUTSIDE, PYTHON))
        elif self._stack:
            self._stack.append(self._frame(event, self._stack[-1]))

    def advance(self, moment: float) -> None:
        """Books the time up to a moment."""
        while self._stack and self._stack[-1].end <= moment:
            self._book(self._stack[-1].end)
            self._stack.pop()
        if self._stack:
            self._book(moment)
        self._now = moment

    def _book(self, until: float) -> None:
        if until > self._now:
            running = self._stack[-1]
            self.booked[self._phase, running.module, running.operator] += until - self._now
            self._now = until

    def _frame(self, event: Mapping[str, Any], outer: _Frame) -> _Frame:
        name, end = event["name"], min(event["ts"] + event["dur"], outer.end)
        if name.startswith(MODULE):
            return _Frame(end, _module(event), PYTHON)
        if event["cat"] != "cpu_op":
            return _Frame(end, outer.module, outer.operator)
        module = outer.module
        if _is_backward(event):
            module = self._last_module = self.makers.get(event["args"]["Sequence number"], outer.module)
        elif name.startswith(_ENGINE):  # for example AccumulateGrad, right after the node that made the gradient
            module = self._last_module
        return _Frame(end, module, name.removeprefix(_ENGINE))


def _on_the_threads_of_the_step(events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The events on the thread that ran the steps, and on autograd's threads for backward nodes."""
    whole = [each for each in events if each.get("ph") == "X" and each.get("cat") in ("cpu_op", "user_annotation")]
    threads = {each["tid"] for each in whole if each["name"] == STEP or _is_backward(each)}
    return [each for each in whole if each["tid"] in threads]


def _makers(events: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """The module whose forward made each autograd node: the one running in the last operator with its number."""
    makers: dict[int, str] = {}
    running: list[tuple[float, str]] = []
    for event in events:
        while running and running[-1][0] <= event["ts"]:
            running.pop()
        if event["name"].startswith(MODULE):
            running.append((event["ts"] + event["dur"], _module(event)))
        elif "Sequence number" in event["args"] and not _is_backward(event):
            makers[event["args"]["Sequence number"]] = running[-1][1] if running else OUTSIDE
    return makers


def _module(event: Mapping[str, Any]) -> str:
    """The name of a module. The model itself counts as outside."""
    return event["name"].removeprefix(MODULE) or OUTSIDE


def _is_backward(event: Mapping[str, Any]) -> bool:
    args = event.get("args", {})
    return bool(args.get("Fwd thread id")) and "Sequence number" in args
