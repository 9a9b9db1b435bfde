"""What a thread waits for, by the functions it is in, the text of its line, and the kernel's place where it sleeps."""

from __future__ import annotations

import re
from typing import NamedTuple

from surefoot.records.stuck import Frame
from surefoot.world import waits

COLLECTIVE, JOINING, BACKWARD = "a collective", "the start of all ranks", "backward"
LOADER, SAMPLE, IDLE = "the data loader", "a sample", "work for a loader worker"
DDP_FORWARD = "a forward of DistributedDataParallel"
LOCK, SLEEP, FILE_LOCK, DATA, DISK = "a lock", "a sleep", "a lock on a file", "another process", "a disk"

_BY_FUNCTION = (
    (JOINING, r"rendezvous\.py|distributed_c10d\.py", r"_create_c10d_store|init_process_group|_store_based_barrier"),
    (COLLECTIVE, "|".join(map(re.escape, waits.COLLECTIVE_FILES)), r"\w+"),
    (COLLECTIVE, re.escape(waits.DDP[0]), "|".join(waits.DDP[1])),
    (BACKWARD, re.escape(waits.BACKWARD[0]), waits.BACKWARD[1]),
    (SAMPLE, r"_utils/fetch\.py", r"fetch"),
    (IDLE, r"_utils/worker\.py", r"_worker_loop"),
    (LOADER, r"data/dataloader\.py", r"_next_data|_get_data|_try_get_data"),
    (LOCK, r"/threading\.py", r"wait|acquire|join|_wait_for_tstate_lock|__enter__"),
    (LOCK, r"/queue\.py|multiprocessing/(?:queues|synchronize)\.py", r"get|put|acquire|__enter__"),
    (DATA, r"/subprocess\.py|multiprocessing/(?:popen_\w+|connection|process)\.py", r"wait|poll|recv\w*|join"),
)
"""The first that any frame matches, by file and function. Outer frames decide: a collective may wait in a lock."""
_BY_KERNEL = (
    (SLEEP, "nanosleep"),
    (LOCK, "futex"),
    (FILE_LOCK, "lock_inode"),
    (FILE_LOCK, "flock"),
    (DISK, "folio"),
    (DISK, "io_schedule"),
    (DATA, "pipe"),
    (DATA, "poll"),
    (DATA, "select"),
    (DATA, "skb"),
    (DATA, "sk_wait"),
    (DATA, "unix_stream"),
)
_LOCKS = {
    True: re.compile(r"\.(?:acquire|join|wait|get|put)\(|^with\b"),
    False: re.compile(r"\.acquire\(|^with\b.*lock|\.join\(", re.IGNORECASE),
}
"""Lines that take a lock: those of a thread that the kernel has put to sleep for one, and those of any thread."""


class Place(NamedTuple):
    """What a thread waits for, and the function that waits."""

    waits_in: str = ""
    call: str = ""


def place_of(frames: tuple[Frame, ...], kernel: str) -> Place:
    """What a thread waits for. `kernel` is the kernel's function that it sleeps in, if that is known."""
    for kind, file, function in _BY_FUNCTION:
        matching = [each for each in frames if re.search(file, each.file) and re.fullmatch(function, _last(each))]
        if kind == SAMPLE and matching:  # what reads the sample may itself wait
            inner = place_of(frames[: frames.index(matching[0])], kernel)
            return inner if inner.waits_in else Place(SAMPLE)
        if matching:
            call = _last(matching[-1] if kind == COLLECTIVE else matching[0])
            return Place(kind, DDP_FORWARD if call in waits.DDP[1] else call if kind != BACKWARD else "")
    asleep = next((kind for kind, name in _BY_KERNEL if name in kernel), "")
    if asleep in ("", LOCK) and frames and _LOCKS[asleep == LOCK].search(frames[0].source):
        return Place(LOCK, frames[0].source)
    if asleep == LOCK:
        return Place()  # threads of native code wait for each other in the same way
    return Place(asleep)


def _last(frame: Frame) -> str:
    return frame.function.rpartition(".")[2]
