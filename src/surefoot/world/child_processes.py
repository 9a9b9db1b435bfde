"""Starts processes that end with the one that started them, however that one ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import torch.multiprocessing as mp

POLL_SECONDS = 1.0


def tied_to_this_process() -> Callable[..., None]:
    """What a child calls first, and a loader's worker as its `worker_init_fn`: it then ends with this process.

    A worker of torch's own looks every five seconds whether its parent lives, and not while it makes a sample.
    """
    return partial(_tie, os.getpid(), threading.current_thread() is threading.main_thread())


def _tie(parent: int, by_main_thread: bool, *_: object) -> None:
    """Linux ends a child with the thread that started it; only the main thread lasts as long as its process."""
    if sys.platform == "linux" and by_main_thread and not _served():
        mp._prctl_pr_set_pdeathsig(signal.SIGKILL)  # type: ignore[attr-defined]
    else:
        threading.Thread(target=_watch, args=(parent,), name="surefoot-parent", daemon=True).start()
    if _is_gone(parent):  # it may have ended before the call
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
    """Whether a fork server is the process above. It lasts as long as its children do."""
    return mp.get_start_method(allow_none=True) == "forkserver"
