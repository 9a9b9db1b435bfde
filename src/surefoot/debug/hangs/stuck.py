"""stuck: looks twice at the processes of a training, and says where each stands and what they wait for."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from surefoot.checkpoint.lock import holder_of
from surefoot.debug.hangs.process_stacks import stacks_of
from surefoot.debug.hangs.processes import (
    Process,
    Wakes,
    cpu_seconds,
    is_python,
    kernel_waits,
    settle,
    tree_of,
    variable_of,
    wakes,
)
from surefoot.debug.hangs.stuck_cause import cause_of
from surefoot.debug.hangs.waiting_places import LOADER, SLEEP, place_of
from surefoot.errors import RunError
from surefoot.records.stuck import Standing, Stuck, Thread

BUSY = 0.5
"""A process that works for this share of the time computes."""
POLLS_PER_SECOND = 2
"""A main thread that wakes up more often than this got what it waited for. torch's loader looks every 5 s."""

MOST_POLLS_PER_SECOND = 20
"""Who sleeps more often than this on one line works in between."""


def stuck(target: str, *, seconds: float = 3.0) -> Stuck:
    """Looks at a process and all that it started, twice, so many seconds apart.

    `target` is the pid of a script or of torchrun, or a directory of a run that is in use.
    """
    processes = [each for each in tree_of(_pid_of(target)) if each.state == "Z" or is_python(each.pid)]
    if not processes:
        raise RunError(f"process {target} does not run Python")
    before = {each.pid: (_standing(each), _settled_wakes(each.pid)) for each in processes}
    time.sleep(seconds)
    woke = {each.pid: wakes(each.pid).per_second(before[each.pid][1]) for each in processes}  # before py-spy wakes it
    worked = {each.pid: cpu_seconds(each.pid) - each.cpu_seconds for each in processes}
    standing = []
    for each in processes:
        now = _standing(each)
        then, often, busy = before[each.pid][0], woke[each.pid], worked[each.pid] / seconds
        state = "polling" if _polls(then, now, often) else _state(each, _goes_on(then, now, often), busy=busy > BUSY)
        standing.append(replace(now, state=state))
    found = _with_roles(standing, processes)
    ranks = variable_of(found[-1].pid, "LOCAL_WORLD_SIZE")
    cause = cause_of(found, int(ranks) if ranks and ranks.isdigit() else None)
    return Stuck(target, cause.stuck, cause.text, cause.remedy, tuple(found), seconds)


def _settled_wakes(pid: int) -> Wakes:
    settle(pid)
    return wakes(pid)


def _pid_of(target: str) -> int:
    if target.isdigit():
        return int(target)
    owner = holder_of(Path(target))
    if owner is None:
        raise RunError(f"{target} is neither the number of a process nor the directory of a run that is in use")
    if not owner.is_alive_here():
        raise RunError(f"{target} was in use by {owner}, which does not run here")
    return owner.pid


def _polls(then: Standing, now: Standing, wakes_per_second: float) -> bool:
    """Whether it sleeps again and again on one line: it waits for something, and looks for it now and then."""
    same = then.waits_in == now.waits_in == SLEEP and then.own_frames == now.own_frames
    return same and 0 < wakes_per_second <= MOST_POLLS_PER_SECOND


def _goes_on(then: Standing, now: Standing, wakes_per_second: float) -> bool:
    """Whether the main thread got on between two looks. Who waits for another process may wake up to look for it."""
    if now.waits_in == SLEEP:
        return wakes_per_second > 0 or then.frames != now.frames
    if now.waits_in and (then.waits_in, then.own_frames) == (now.waits_in, now.own_frames):
        return wakes_per_second > POLLS_PER_SECOND
    return then.frames != now.frames or (not now.waits_in and wakes_per_second > MOST_POLLS_PER_SECOND)


def _state(process: Process, goes_on: bool, *, busy: bool) -> str:
    if process.state == "Z":
        return "ended"
    if process.state in "Tt":
        return "stopped"
    return "moving" if goes_on else "computing" if busy else "still"


def _standing(process: Process) -> Standing:
    asleep = kernel_waits(process.pid)  # before py-spy: whom it wakes sleeps again only when a core is free
    stacks = [] if process.state == "Z" else stacks_of(process.pid, stopped=process.state in "Tt")
    frames = stacks[0].frames if stacks else ()
    place = place_of(frames, asleep.get(process.pid, ""))
    rank = variable_of(process.pid, "RANK")
    threads = tuple(
        Thread(each.name, place_of(each.frames, asleep.get(each.number, "")).waits_in, each.frames)
        for each in stacks[1:]
        if any(frame.user for frame in each.frames)
    )
    return Standing(
        pid=process.pid, role="", state="", waits_in=place.waits_in, call=place.call, frames=frames,
        rank=int(rank) if rank and rank.isdigit() else None, parent=process.parent, threads=threads,
    )  # fmt: skip


def _with_roles(found: list[Standing], processes: list[Process]) -> list[Standing]:
    """Who each of them is. A loader's worker is no rank, although it has the variables of one."""
    known = {each.pid for each in processes}
    starters = {each.parent for each in found if each.rank is not None}
    named: list[Standing] = []
    for each in found:
        if any(frame.file.endswith("_utils/worker.py") for frame in each.frames) or _waits_for(each, found):
            each = replace(each, role="loader worker", rank=None)
        elif each.rank is not None and not _is_below_rank(each, found):
            each = replace(each, role=f"rank {each.rank}")
        elif each.pid in starters:
            each = replace(each, role="launcher", rank=None)
        else:
            each = replace(each, role="child" if named else "main", rank=None)
        named.append(replace(each, parent=each.parent if each.parent in known else None))
    return named


def _waits_for(each: Standing, found: list[Standing]) -> bool:
    """Whether it has ended, and its parent waits for its loader."""
    return each.state == "ended" and any(other.pid == each.parent and other.waits_in == LOADER for other in found)


def _is_below_rank(each: Standing, found: list[Standing]) -> bool:
    return any(other.pid == each.parent and other.rank is not None for other in found)
