"""Ties child processes to their parent: they end when it ends, even if it is killed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import torch.multiprocessing as mp

from surefoot.torch_inside.processes import die_with_parent

POLL_SECONDS = 1.0


def tied_to_this_process() -> Callable[..., None]:
    """A function that a child calls first, or a loader's worker as `worker_init_fn`, to end with this process.

    torch's own workers check their parent only every five seconds, and not while they read a sample.
    """
    return partial(_tie, os.getpid(), threading.current_thread() is threading.main_thread())


def tie_to_parent() -> None:
    """Ends this process with the one that started it, whose main thread must have done so."""
    _tie(os.getppid(), True)


def _tie(parent: int, by_main_thread: bool, *_: object) -> None:
    """Ties this process to its parent. Linux ends a child with its parent thread, so that must be the main one."""
    if sys.platform == "linux" and by_main_thread and not _served():
        die_with_parent(signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), name="surefoot-parent", daemon=True).start()
    if _is_gone(parent):  # the parent may have ended before the call
        os._exit(1)


def _watch(parent: int) -> None:
    while not _is_gone(parent):
        time.sleep(POLL_SECONDS)
    os._exit(1)


def _is_gone(parent: int) -> bool:
    if not _served():
        return os.getppid() != parent
    try:
        os.kill(parent, 0)
    except ProcessLookupError:
        return True
    return False


def _served() -> bool:
    """Whether the parent is a fork server. A fork server lives as long as its children."""
    return mp.get_start_method(allow_none=True) == "forkserver"
