"""Roofline: seconds of each operator on a device, from its FLOPs, the bytes it moves and the launch overhead.

An operator takes as long as the slowest of three: its FLOPs at the rate that matrix products really reach, its bytes
at the bandwidth that memory really reaches, or the shortest time of a kernel. A matrix product on a GPU takes the sum
of the first two: a multiprocessor does not compute while it loads its first operands and writes its tile. Reached
rates are kept apart from the datasheet's peaks.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from surefoot.costs.attention import attention_share
from surefoot.errors import UnknownDevice
from surefoot.hardware import Datasheet, datasheet, known_devices
from surefoot.hardware.here import HERE
from surefoot.records.step_time import StepTime
from surefoot.records.work import Work

MEMORY_SHARE = 0.85
"""The share of a datasheet's memory bandwidth that large elementwise kernels reach. Assumed."""

ATTENTION_SHARE = 0.7
"""The share of the rate of large matrix products that fused attention reaches, if none is published. Assumed."""

KERNEL_SECONDS = 4e-6
"""The shortest time from one kernel to the next. Assumed."""

TILE = 128
"""Rows and columns of a result that one multiprocessor computes at once."""


FILL = 128
"""Terms of each sum that a tile could add while it loads its first operands: three or four loads of 32. Assumed."""


@dataclass(frozen=True)
class Ceilings:
    """The rates a device reaches: FLOP/s of large matrix products by number format, bytes and seconds per kernel.

    With `processors`, a matrix product whose tiles do not fill all of them takes as long as if they did, and the time
    for its bytes is added to that for its FLOPs. A GPU prepares a kernel while another runs, so a kernel takes at least
    `kernel_seconds`. A CPU does one thing after the other, so each call costs `call_seconds` more.
    """

    flops: dict[str, float]
    memory_bandwidth: float
    kernel_seconds: float = KERNEL_SECONDS
    call_seconds: float = 0.0
    attention_share: float = ATTENTION_SHARE
    processors: int = 0
    assumptions: tuple[str, ...] = field(default=())


def ceilings_of(sheet: Datasheet, *, attention: str = "") -> Ceilings:
    """The rates that a device with this datasheet should reach. `attention` names a kernel other than torch's own."""
    if sheet.name == HERE:
        return _ceilings_here(sheet)
    if not sheet.memory_bandwidth or not sheet.dense_flops:
        raise UnknownDevice(f"the datasheet of {sheet.name} states no peak or no memory bandwidth, so no time is known")
    share, where = reached_share(sheet)
    attends = (attention_share(sheet, attention) or ATTENTION_SHARE * share) / share
    return Ceilings(
        {name: share * peak for name, peak in sheet.dense_flops.items()},
        MEMORY_SHARE * sheet.memory_bandwidth,
        attention_share=attends,
        processors=sheet.processors,
        assumptions=(
            f"matrix products reach {share:.0%} of the datasheet's peak, {where}; attention {attends * share:.0%}",
            f"other operators reach {MEMORY_SHARE:.0%} of its memory bandwidth; a kernel takes at least "
            f"{KERNEL_SECONDS * 1e6:.0f} us",
        ),
    )


def _ceilings_here(sheet: Datasheet) -> Ceilings:
    """All rates are measured. The only assumption: attention runs at the rate of matrix products."""
    return Ceilings(
        dict(sheet.reached_flops or {}),
        sheet.memory_bandwidth,
        kernel_seconds=0.0,
        call_seconds=sheet.kernel_seconds,
        attention_share=1.0,
        assumptions=(f"this machine as measured; {sheet.kernel_seconds * 1e6:.1f} us of overhead per call",),
    )


def reached_share(sheet: Datasheet) -> tuple[float, str]:
    """The share of the dense peak that large matrix products reach in bf16, and how it is known."""
    if sheet.achievable_share:
        return sheet.achievable_share, "as in published training runs"
    if measured := _measured_share(sheet):
        return measured, "as measured"
    others = [share for share in map(_measured_share, map(datasheet, known_devices())) if share]
    return statistics.median(others), "the median of all measured devices"


def _measured_share(sheet: Datasheet) -> float:
    reached, peak = (sheet.reached_flops or {}).get("bf16", 0.0), sheet.dense_flops.get("bf16", 0.0)
    return reached / peak if peak else 0.0


def seconds_of(work: Work, ceilings: Ceilings) -> tuple[float, str]:
    """The seconds of one call, and its bottleneck: compute, memory or overhead."""
    peak = ceilings.flops.get(work.format) or ceilings.flops.get("fp32") or max(ceilings.flops.values())
    if "attention" in work.operator:
        peak *= ceilings.attention_share
    compute = work.flops / (peak * _filled(work.shape, ceilings.processors))
    memory = work.bytes_moved / ceilings.memory_bandwidth
    if work.shape and ceilings.processors:
        compute += memory
    slowest = max(compute, memory, ceilings.kernel_seconds, ceilings.call_seconds)
    bound = "compute" if slowest == compute else "memory" if slowest == memory else "overhead"
    return max(compute, memory, ceilings.kernel_seconds) + ceilings.call_seconds, bound


def _filled(shape: tuple[int, ...], processors: int) -> float:
    """The share of all multiprocessors' time that does useful work.

    The rest is lost to tiles that hang over the edges, a last wave that is not full, and waiting for first operands.
    """
    if not shape or not processors:
        return 1.0
    many, rows, columns, terms = shape
    down, across = math.ceil(rows / TILE), math.ceil(columns / TILE)
    tiles = many * down * across
    waves = math.ceil(tiles / processors)
    return (many * rows * columns) / (waves * processors * TILE * TILE) * terms / (terms + FILL)


def step_time(works: Iterable[Work], ceilings: Ceilings, *, flops: float = 0, peak_flops: float = 0) -> StepTime:
    """The time of one step on one device, without communication."""
    phases: dict[str, float] = {}
    bounds: dict[str, float] = {}
    modules: dict[str, float] = {}
    for work in works:
        seconds, bound = seconds_of(work, ceilings)
        seconds *= work.calls
        for totals, name in ((phases, work.phase), (bounds, bound), (modules, work.module)):
            totals[name] = totals.get(name, 0.0) + seconds
    return StepTime(
        seconds=sum(phases.values()),
        phases=phases,
        bounds=bounds,
        modules=dict(sorted(modules.items(), key=lambda item: -item[1])),
        flops_only_seconds=flops / peak_flops if peak_flops else 0.0,
        assumptions=ceilings.assumptions,
    )
