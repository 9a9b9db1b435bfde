"""Why processes do not go on, from where each of them stands. No torch, no process: records in, sentences out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from surefoot.debug.hangs.waiting_places import BACKWARD, COLLECTIVE, DDP_FORWARD, IDLE, JOINING, LOADER, LOCK, SAMPLE
from surefoot.records.stuck import Frame, Standing, Thread

_SAME = "Let all ranks take the same collectives in the same order."
_DDP = "A forward of a DDP model waits for all ranks, in an evaluation too: run it on all, or use `model.module`."
_ORDER = "Let one of two ranks send first and the other receive first, or use `batch_isend_irecv`."
_ONE_WAY = {"recv": ("receive", "send"), "send": ("send", "receive")}
_POLLS = "Look at what that loop waits for: it may never come."
_TOGETHER = (COLLECTIVE, JOINING, BACKWARD)


class Cause(NamedTuple):
    """Whether they are stuck, why, and what to do."""

    stuck: bool
    text: str
    remedy: str = ""


def cause_of(processes: Sequence[Standing], ranks_expected: int | None = None) -> Cause:
    """The first of several causes that fits what is seen."""
    ranks = sorted((each for each in processes if each.rank is not None), key=lambda each: each.rank or 0)
    trains = [each for each in processes if each.role in ("main", "child")]
    for cause in (
        _gone(ranks, ranks_expected),
        _stopped(processes),
        _moves(ranks or trains),
        _one_is_late(ranks, processes),
        _other_collectives(ranks),
        *(_one_process(each, processes) for each in ranks or trains),
    ):
        if cause is not None:
            return cause
    return Cause(True, "no process goes on, and none of them waits in a place that is known: see the lines below")


def line_text(frame: Frame | None) -> str:
    """` at train.py:12 in step`; empty if no line of the user's code is known."""
    return f" at {os.path.basename(frame.file)}:{frame.line} in {frame.function}" if frame else ""


# ------------------------------------------------------------------------------------------- ranks


def _gone(ranks: Sequence[Standing], expected: int | None) -> Cause | None:
    here = {each.rank for each in ranks if each.state != "ended"}
    if expected is None or not here or len(here) >= expected:
        return None
    waiting = [each for each in ranks if each.waits_in in _TOGETHER]
    first = min(each for each in here if each is not None) // expected * expected
    missing = [rank for rank in range(first, first + expected) if rank not in here]
    return Cause(
        bool(waiting),
        f"{_named(missing)} of this machine {_is(missing)} gone" + _others(waiting),
        "Look for its error above in the output, and in the kernel's log if it was killed for memory (`dmesg`).",
    )


def _stopped(processes: Sequence[Standing]) -> Cause | None:
    stopped = [each for each in processes if each.state == "stopped"]
    if not stopped:
        return None
    who = ", ".join(f"{each.role} (process {each.pid})" for each in stopped)
    verb = "are" if len(stopped) > 1 else "is"
    waiting = [each for each in processes if each not in stopped and each.rank is not None]
    return Cause(
        True,
        f"{who} {verb} stopped, by a signal or a debugger" + _others(waiting),
        f"Let it go on: kill -CONT {' '.join(str(each.pid) for each in stopped)}",
    )


def _moves(trains: Sequence[Standing]) -> Cause | None:
    moving = [each for each in trains if each.state in ("moving", "computing")]
    if not moving or (len(moving) < len(trains) and any(each.waits_in in _TOGETHER for each in trains)):
        return None
    each = moving[0]
    if each.state == "moving":
        return Cause(False, f"not stuck: {each.role} goes on, last seen{line_text(each.at)}")
    return Cause(
        False,
        f"not stuck: {each.role} computes{line_text(each.at)}, all the time in one call",
        "If that call lasts too long, its operands are too large or it runs on one core.",
    )


def _one_is_late(ranks: Sequence[Standing], processes: Sequence[Standing]) -> Cause | None:
    waiting = [each for each in ranks if each.waits_in in _TOGETHER and each.state != "computing"]
    late = [each for each in ranks if each not in waiting]
    if not late or not waiting:
        return None
    named = _named([each.rank for each in late if each.rank is not None])
    why = _one_process(late[0], processes)
    own = f": {why.text}" if why else f": it stands{line_text(late[0].at)}"
    return Cause(
        True,
        f"{named} {_is(late)} in no collective{own}{_others(waiting)}",
        (why.remedy if why else "") or f"A collective ends when all ranks have joined it. {_SAME}",
    )


def _other_collectives(ranks: Sequence[Standing]) -> Cause | None:
    waiting = [each for each in ranks if each.waits_in in _TOGETHER]
    if len(ranks) < 2 or len(waiting) < len(ranks):
        return None
    groups: dict[str, list[int]] = {}
    for each in waiting:
        groups.setdefault(f"{each.call or each.waits_in}{line_text(each.at)}", []).append(each.rank or 0)
    each_in = "; ".join(f"{_named(who)} in {at}" for at, who in groups.items())
    calls = {each.call for each in waiting}
    if calls <= set(_ONE_WAY) and len(calls) == 1:
        wanted, missing = _ONE_WAY[calls.pop()]
        return Cause(True, f"all ranks wait to {wanted}, and none to {missing}: {each_in}", _ORDER)
    if len(groups) > 1:
        ddp = f" {_DDP}" if DDP_FORWARD in calls else ""
        return Cause(
            True,
            f"ranks are in different collectives: {each_in}",
            f"One rank took a branch that another did not, or has more to do in a loop. {_SAME}{ddp}",
        )
    return Cause(
        True,
        f"all {len(ranks)} ranks wait in {next(iter(groups))}",
        "All are at the same line: their shapes may differ, a rank on another machine may be missing, or the network "
        "does not deliver. TORCH_DISTRIBUTED_DEBUG=DETAIL compares shapes before each collective.",
    )


# ------------------------------------------------------------------------------------------- one process


def _one_process(process: Standing, processes: Sequence[Standing]) -> Cause | None:
    if process.waits_in == LOADER:
        return _loader(process, [each for each in processes if each.parent == process.pid])
    if process.waits_in == LOCK:
        return _locked(process)
    if process.waits_in == BACKWARD or not process.waits_in:
        return None
    place = f"{process.call} ({process.waits_in})" if process.call else process.waits_in
    remedy = _POLLS if process.state == "polling" else ""
    return Cause(True, f"{process.role} waits in {place}{_again(process)}{line_text(process.at)}", remedy)


def _loader(process: Standing, children: Sequence[Standing]) -> Cause:
    workers = [each for each in children if each.role == "loader worker"]
    waits = f"{process.role} waits for the data loader{line_text(process.at)}"
    reading = [each for each in workers if each.waits_in != IDLE and each.state != "ended"]
    ended = [each for each in workers if each.state == "ended"]
    if ended:
        return Cause(True, f"{waits}; loader worker (process {ended[0].pid}) has ended", "Look for its error above.")
    if not reading:
        return Cause(
            True,
            f"{waits}; its {len(workers)} workers have nothing to do",
            "A sample was lost on its way from a worker: set num_workers=0 to see the error of the data set.",
        )
    at_work = [each for each in reading if each.state in ("moving", "computing")]
    if at_work:
        return Cause(
            False,
            f"not stuck: {waits}; loader worker (process {at_work[0].pid}) is at work{line_text(at_work[0].at)}",
            "The loop is faster than its data: use more workers, or do less in that line.",
        )
    one = reading[0]
    what = (
        "waits for a lock"
        if one.waits_in == LOCK
        else "is"
        if one.waits_in in ("", SAMPLE)
        else f"is in {one.waits_in}{_again(one)}"
    )
    lock = (
        "If it was held when the worker was forked, it is never released there: make locks in worker_init_fn, or use "
    )
    return Cause(
        True,
        f"{waits}; loader worker (process {one.pid}) {what}{line_text(one.at)}",
        f"{lock}multiprocessing_context='spawn'." if one.waits_in == LOCK else "Look at what that line waits for.",
    )


def _locked(process: Standing) -> Cause:
    others = [each for each in process.threads if each.at is not None]
    text = f"{process.role} waits for a lock{line_text(process.at)}"
    if others:
        text += "; " + "; ".join(f"thread {each.name}{_what(each)}{line_text(each.at)}" for each in others)
    held = any(each.waits_in == LOCK for each in others)
    remedy = "Take the locks in the same order everywhere." if held else "Look for the thread or process that holds it."
    return Cause(True, text, remedy)


def _what(thread: Thread) -> str:
    return f" waits for {thread.waits_in}" if thread.waits_in else " stands"


# ------------------------------------------------------------------------------------------- words


def _others(waiting: Sequence[Standing]) -> str:
    """`; the others wait in all_reduce at train.py:12 in step`."""
    places = sorted({f"{each.call or each.waits_in}{line_text(each.at)}" for each in waiting if each.waits_in})
    return f"; the others wait in {', '.join(places)}" if places else ""


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _again(process: Standing) -> str:
    return ", again and again," if process.state == "polling" else ""


def _is(these: Sequence[object]) -> str:
    return "are" if len(these) > 1 else "is"
