"""Limits on what a Jinja template from a folder may take: seconds and memory.

jinja's sandbox keeps a template from the system, not from a loop without an end or a text of ten gigabytes. In the main
thread a timer interrupts it, also within one long operation such as `9**(9**9)`. In another thread, where Python
delivers no signals, a trace function looks at the clock before each line of the template.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn

from surefoot.errors import DataError
from surefoot.units import bytes_text

SECONDS = 5.0
"""CPU time of the thread, so that a busy machine refuses nothing. Real templates take milliseconds."""
MORE_BYTES = 2**30
"""What the process may take more while it renders."""
_LOOK_SECONDS = 0.1
_TEMPLATE = "<template>"
"""The file name that jinja gives to the code of a template that is a text."""


class TemplateLimit(DataError):
    """A template took too long, or too much memory."""


class _Over(BaseException):
    """The time is over. Not an Exception: jinja takes those for an expression that is no constant, and tries again."""


@contextmanager
def limited_template(name: str) -> Iterator[None]:
    """Ends the template that is compiled or rendered here when it exceeds a limit, and says at which of its lines."""
    deadline = time.thread_time() + SECONDS

    def look() -> None:
        if time.thread_time() > deadline:
            raise _Over

    try:
        with ExitStack() as limits:
            limits.enter_context(_memory(MORE_BYTES))
            limits.enter_context(_timer(look) if _takes_signals() else _trace(look))
            yield
    except _Over as error:
        _refuse(name, f"runs for more than {SECONDS:g} seconds", error)
    except MemoryError as error:
        _refuse(name, f"takes more than {bytes_text(MORE_BYTES)} of memory", error)


def _refuse(name: str, what: str, error: BaseException) -> NoReturn:
    line = _line(error.__traceback__)
    place = "" if line is None else f" in its line {line}"
    raise TemplateLimit(f"{name} {what}{place}; correct it, or use another") from None


def _line(trace: TracebackType | None) -> int | None:
    """The line of the template that was running. Jinja has replaced the frames of an Exception, of others not."""
    found = None
    while trace is not None:
        known = trace.tb_frame.f_globals
        if "__jinja_exception__" in known:
            found = trace.tb_lineno
        elif trace.tb_frame.f_code.co_filename == _TEMPLATE and "__jinja_template__" in known:
            found = int(known["__jinja_template__"].get_corresponding_lineno(trace.tb_lineno))
        trace = trace.tb_next
    return found


# ---------------------------------------------------------------------------------------- time


def _takes_signals() -> bool:
    return threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")


@contextmanager
def _timer(look: Callable[[], None]) -> Iterator[None]:
    """Calls `look` now and then. The timer of CPU time is one that hardly any program uses."""
    armed = True

    def handler(_number: int, _frame: FrameType | None) -> None:
        if armed:
            look()

    before = signal.signal(signal.SIGVTALRM, handler)
    timer = signal.setitimer(signal.ITIMER_VIRTUAL, _LOOK_SECONDS, _LOOK_SECONDS)
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_VIRTUAL, *timer)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL if before is None else before)


@contextmanager
def _trace(look: Callable[[], None]) -> Iterator[None]:
    """Calls `look` at each call, and at each line of a template."""

    def trace(frame: FrameType, _event: str, _argument: Any) -> Any:
        look()
        return trace if frame.f_code.co_filename == _TEMPLATE else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


# ---------------------------------------------------------------------------------------- memory


@contextmanager
def _memory(more_bytes: int) -> Iterator[None]:
    """Lets this process take at most so many bytes more."""
    try:
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        before = resource.getrlimit(resource.RLIMIT_AS)
    except (ImportError, OSError):  # not Linux: Python raises MemoryError only when the system refuses
        yield
        return
    wanted = used + more_bytes
    least = wanted if before[0] == resource.RLIM_INFINITY else min(wanted, before[0])
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (least, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
