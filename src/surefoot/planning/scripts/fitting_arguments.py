"""After an out-of-memory error of a script: which of its arguments would fit, by plans of the script.

No name of an argument has to be known. Each number is halved and each flag is set, one at a time; what lowers the peak
and leaves the model's parameters as they are is searched on, until it fits.
"""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Iterator, Sequence

from surefoot.errors import SurefootError
from surefoot.planning.scripts.plan_script import plan_script
from surefoot.records.out_of_memory import OutOfMemory, Setting
from surefoot.records.plan import Plan
from surefoot.source.options import Option, options_of, with_option

MOST_PLANS = 24
MOST_SECONDS = 180.0
"""No plan begins after these: whoever waits has a script that ended."""
_MOST_NAMED = 3
_LOWER = 0.98
"""An argument counts if it takes the peak below this share."""
_LEAST_BYTES = 0.5
"""Of a parameter: those of 4-bit layers."""


def with_arguments(record: OutOfMemory, script: str, args: Sequence[str], *, on: str | None = None) -> OutOfMemory:
    """What is known of an out-of-memory error, with arguments of the script that would fit.

    `on` names the GPU that ran out of memory. Without it and without a limit, there is nothing to fit into.
    """
    if record.limit_bytes is None and on is None:
        return record
    search = _Search(script, list(args), on or "cpu", record.room_bytes)
    try:
        now = search.planned(search.args)
    except SurefootError as error:
        return record.noting(f"arguments that fit were not searched for: {str(error).splitlines()[0]}")
    if search.fits(now):
        search.room = now.live_bytes - 1  # the plan was too low: what it says of the same peak does not fit either
    options = options_of(script, search.args)
    found = [each for option in options if (each := search.of_option(option, now)) is not None]
    named = tuple(sorted(found, key=lambda each: -each.planned_bytes)[:_MOST_NAMED])
    notes = []
    if not named and options:
        notes.append("no single argument of the script was found that fits and leaves the model as it is")
    if search.has_ended:
        notes.append(f"the search ended after {search.plans} plans: other arguments may fit")
    return dataclasses.replace(record, planned_bytes=now.live_bytes, fits=named).noting(*notes)


class _Search:
    """Plans of one script with other arguments, into the room for a step, or else into the GPU."""

    def __init__(self, script: str, args: list[str], on: str, room: int | None) -> None:
        self.script, self.args, self.room = script, args, room
        self.plans = 0
        self._on, self._until = on, time.monotonic() + MOST_SECONDS

    @property
    def has_ended(self) -> bool:
        return self.plans >= MOST_PLANS or time.monotonic() > self._until

    def planned(self, args: Sequence[str]) -> Plan:
        """The plan with these arguments."""
        self.plans += 1
        return plan_script([self.script, *args], on=self._on)

    def fits(self, plan: Plan) -> bool:
        if self.room is not None:
            return plan.live_bytes <= self.room
        return plan.fit is None or plan.fit.fits

    def of_option(self, option: Option, now: Plan) -> Setting | None:
        """The largest half of a number that fits, or a flag that does.

        None if it changes the model, does not lower the peak, or has no plan.
        """
        before = now.live_bytes
        for tried in _smaller(option):
            if self.has_ended:
                return None
            words = with_option(self.args, tried)
            try:
                plan = self.planned(words)
            except SurefootError:
                return None
            if not _is_same_model(plan, now) or plan.live_bytes > _LOWER * before:
                return None
            if self.fits(plan):
                value = True if tried.number is None else tried.number
                return Setting({tried.name: value}, plan.live_bytes, f"python {self.script} {shlex.join(words)}")
            before = plan.live_bytes
        return None


def _is_same_model(plan: Plan, now: Plan) -> bool:
    """Whether the model is as it was, and on the device: with `--no-cuda` nothing of it is there."""
    return plan.parameters == now.parameters and plan.live_bytes >= plan.parameters * _LEAST_BYTES


def _smaller(option: Option) -> Iterator[Option]:
    """A flag itself; of a number its half, the half of that, and so on."""
    if option.number is None:
        yield option
        return
    while option.number > 1:
        option = Option(option.name, option.number // 2)
        yield option
