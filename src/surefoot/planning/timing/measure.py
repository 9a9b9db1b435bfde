"""Measures this machine as a datasheet: matrix products, memory, call overhead, collectives.

Every figure is the best of several rounds, so that other programs on the machine affect it little.
"""

from __future__ import annotations

import functools
import platform
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from surefoot.errors import WorldError
from surefoot.hardware import Datasheet
from surefoot.hardware.here import HERE
from surefoot.hardware.host import known_memory_bytes
from surefoot.planning.timing.call_overhead import call_seconds
from surefoot.planning.timing.rounds import Rounds
from surefoot.world.child_processes import tied_to_this_process

PRODUCTS = ((1024, 1024, 1024), (2048, 1024, 256), (4096, 256, 1024))
"""Rows, columns and inner dimension of the timed matrix products. The fastest counts."""

COPIED_BYTES = 256 << 20
SENT_BYTES = 32 << 20
_FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def measure_here(*, rounds: int = 5, clock: Callable[[], float] = time.perf_counter) -> Datasheet:
    """Measures for about half a minute. The machine should be idle otherwise; if it is too busy, this is refused."""
    threads, timed = torch.get_num_threads(), Rounds(rounds, clock)
    return Datasheet(
        name=HERE,
        vendor=platform.machine(),
        dense_flops={},
        memory_bytes=known_memory_bytes(),
        reached_flops={name: _product_flops(name, dtype, timed) for name, dtype in _FORMATS.items()},
        memory_bandwidth=_copied_bytes_per_second(timed),
        kernel_seconds=_kernel_seconds(timed),
        call_seconds=call_seconds(clock=clock),
        link="gloo, 2 processes of this machine",
        link_bandwidth=_sent_bytes_per_second(rounds),
        sources=(f"surefoot hardware measure, {datetime.now(timezone.utc):%Y-%m-%d}, torch {torch.__version__}",),
        notes=(f"{threads} threads", *timed.notes()),
    )


def _product_flops(name: str, dtype: torch.dtype, timed: Rounds) -> float:
    found = []
    for rows, columns, length in PRODUCTS:
        left, right = torch.ones(rows, length, dtype=dtype), torch.ones(length, columns, dtype=dtype)
        seconds = timed.fastest(f"{name} products", functools.partial(torch.matmul, left, right))
        found.append(2 * rows * columns * length / seconds)
    return max(found)


def _copied_bytes_per_second(timed: Rounds) -> float:
    """Counts bytes read and bytes written."""
    source = torch.ones(COPIED_BYTES // 4)
    target = torch.empty_like(source)
    return 2 * COPIED_BYTES / timed.fastest("copies", lambda: target.copy_(source))


def _kernel_seconds(timed: Rounds) -> float:
    """The overhead of one operator (Python, dispatch, autograd), from a chain of tiny operators."""
    layer, sample = torch.nn.Linear(1, 1), torch.ones(1, 1)
    chain = 50

    def step() -> None:
        made = sample
        for _ in range(chain):
            made = torch.tanh(layer(made))
        made.sum().backward()

    operators = chain * 2 + chain * 5  # forward: addmm, tanh; backward: tanh, two products, a sum, an accumulation
    return timed.fastest("small operators", step) / operators


def _sent_bytes_per_second(rounds: int) -> float:
    """One-way bandwidth of an all-reduce between two processes: each sends its tensor once."""
    context = mp.get_context("spawn")
    answers, tie = context.SimpleQueue(), tied_to_this_process()
    with tempfile.TemporaryDirectory() as folder:  # a file with a name that others can guess could be their link
        store = f"{folder}/store"
        ranks = [context.Process(target=_reduce, args=(tie, rank, store, rounds, answers)) for rank in range(2)]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
    if any(each.exitcode for each in ranks):
        raise WorldError("two processes on this machine could not all-reduce a tensor; see their errors above")
    return SENT_BYTES / answers.get()


def _reduce(tie: Callable[..., None], rank: int, store: str, rounds: int, answers: mp.SimpleQueue[float]) -> None:
    tie()
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    sent = torch.ones(SENT_BYTES // 4)
    dist.all_reduce(sent)
    found = []
    for _ in range(rounds):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(sent)
        found.append(time.perf_counter() - began)
    dist.destroy_process_group()
    if rank == 0:
        answers.put(min(found))
