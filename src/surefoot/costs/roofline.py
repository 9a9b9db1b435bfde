"""Roofline: seconds of each operator on a device, from its FLOPs, the bytes it moves and the launch overhead.

An operator takes as long as the slowest of three: its FLOPs at the rate that matrix products really reach, its bytes
at the bandwidth that memory really reaches, or the shortest time of a kernel. A matrix product on a GPU takes the sum
of the first and a share of the second: a multiprocessor hides only some of its loads and writes. The host
prepares kernels ahead of the device; a step of many small kernels waits for it. Reached rates are kept apart from the
datasheet's peaks.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from surefoot.costs.attention import attention_share
from surefoot.costs.time_constants import Constants, constants
from surefoot.errors import UnknownDevice
from surefoot.hardware import Datasheet, datasheet, known_devices
from surefoot.hardware.here import HERE
from surefoot.hardware.host_link import REACHED_SHARE, host_link
from surefoot.records.step_time import StepTime
from surefoot.records.usage import TRANSFERS, Work

ATTENTION_SHARE = 0.7
"""The share of the rate of large matrix products that fused attention reaches, if none is published. Assumed."""

KERNEL_SECONDS = 4e-6
"""The shortest time from one kernel to the next. Assumed."""

EXACT_SHARE = 0.92
"""The share of the peak that float32 products reach without tensor cores, which wait less for memory. Assumed."""

TILE = 128
"""Rows and columns of a result that one multiprocessor computes at once."""


FILL = 128
"""Terms of each sum that a tile could add while it loads its first operands: three or four loads of 32. Assumed."""


MOST_PARTS, SHORTEST = 8, 2048
"""A sum is split into no more parts than this, none of them shorter. Assumed."""


@dataclass(frozen=True)
class Ceilings:
    """The rates a device reaches: FLOP/s of large matrix products by number format, bytes and seconds per kernel.

    With `processors`, a matrix product whose tiles do not fill all of them takes as long as if they did, and a share of
    the time for its bytes, `product_bytes_share`, is added to that for its FLOPs. A GPU prepares a kernel while another
    runs, so a kernel takes at least `kernel_seconds`, and all calls together at least `host_seconds` each. A CPU does
    one thing after the other, so each call costs `call_seconds` more. `fused_bandwidth` is that of compiled kernels; 0
    if it is no other.
    """

    flops: dict[str, float]
    memory_bandwidth: float
    fused_bandwidth: float = 0.0
    kernel_seconds: float = KERNEL_SECONDS
    host_seconds: float = 0.0
    call_seconds: float = 0.0
    attention_share: float = ATTENTION_SHARE
    product_bytes_share: float = 1.0
    processors: int = 0
    host_bandwidth: float = 0.0
    """Bytes per second that transfers to and from host memory reach; 0 if it is unknown."""
    assumptions: tuple[str, ...] = field(default=())


def ceilings_of(sheet: Datasheet, *, attention: str = "", fitted: Constants | None = None) -> Ceilings:
    """The rates that a device with this datasheet should reach. `attention` names a kernel other than torch's own."""
    if sheet.name == HERE:
        return _ceilings_here(sheet)
    if not sheet.memory_bandwidth or not sheet.dense_flops:
        raise UnknownDevice(f"the datasheet of {sheet.name} states no peak or no memory bandwidth, so no time is known")
    fitted = fitted or constants()
    share, where = reached_share(sheet, fitted)
    flops = {name: (EXACT_SHARE if name == "fp32" else share) * peak for name, peak in sheet.dense_flops.items()}
    attends = (attention_share(sheet, attention) or ATTENTION_SHARE * share) / share
    return Ceilings(
        flops | _fp8(sheet, share),
        fitted.memory_share * sheet.memory_bandwidth,
        fitted.fused_share * sheet.memory_bandwidth,
        host_seconds=fitted.host_seconds,
        attention_share=attends,
        product_bytes_share=fitted.product_bytes_share,
        processors=sheet.processors,
        host_bandwidth=REACHED_SHARE * host_link(sheet)[0],
        assumptions=(
            f"matrix products reach {share:.0%} of the datasheet's peak, {where}; attention {attends * share:.0%}",
            f"other operators reach {fitted.memory_share:.0%} of its memory bandwidth, compiled ones "
            f"{fitted.fused_share:.0%}; a kernel takes at least {KERNEL_SECONDS * 1e6:.0f} us, and the host "
            f"{fitted.host_seconds * 1e6:.1f} us to launch it",
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


def reached_share(sheet: Datasheet, fitted: Constants) -> tuple[float, str]:
    """The share of the dense peak that products reach in a step, and how it is known.

    It is the fastest measured product of the device, times what training reaches of that. Without a measurement, the
    fastest of the same compute capability stands in; without one of these, the median of all measured devices.
    """
    generation = sheet.compute_capability
    alike = [each for each in map(datasheet, known_devices()) if generation and each.compute_capability == generation]
    fastest = _measured_share(sheet) or max(map(_measured_share, alike), default=0.0)
    reached = fitted.product_share.get(generation)
    if fastest and reached:
        return fastest * reached, "as in published training runs"
    known = [share for share in map(_measured_share, map(datasheet, known_devices())) if share]
    usual = statistics.median(fitted.product_share.values())
    if fastest:
        return fastest * usual, "as measured, less what training runs lose on other devices"
    return statistics.median(known) * usual, "the median of all measured devices"


def _fp8(sheet: Datasheet, share: float) -> dict[str, float]:
    """The rate of FP8 products. Their fastest measured one is further from the peak than that of bfloat16.

    A training run is taken to reach as much of it as of that. Where no source states a peak, it is twice that of
    bfloat16, as on all devices that state both.
    """
    peak = sheet.dense_flops.get("fp8") or 2 * sheet.dense_flops.get("bf16", 0.0)
    generation = sheet.compute_capability
    alike = [each for each in map(datasheet, known_devices()) if generation and each.compute_capability == generation]
    measured = [each for each in (sheet, *alike) if _measured_share(each, "fp8") and _measured_share(each)]
    lost = _measured_share(measured[0], "fp8") / _measured_share(measured[0]) if measured else 1.0
    return {"fp8": share * lost * peak} if peak else {}


def _measured_share(sheet: Datasheet, number_format: str = "bf16") -> float:
    reached, peak = (sheet.reached_flops or {}).get(number_format, 0.0), sheet.dense_flops.get(number_format, 0.0)
    return reached / peak if peak else 0.0


def seconds_of(work: Work, ceilings: Ceilings) -> tuple[float, str]:
    """The seconds of one call, and its bottleneck: compute, memory, overhead, or transfers to the host."""
    if work.operator in TRANSFERS:
        return work.bytes_moved / (ceilings.host_bandwidth or ceilings.memory_bandwidth), "transfers"
    peak = ceilings.flops.get(work.format) or ceilings.flops.get("fp32") or max(ceilings.flops.values())
    if "attention" in work.operator:
        peak *= ceilings.attention_share
    compute = work.flops / (peak * _filled(work.shape, ceilings.processors))
    fused = work.operator == "fused" and ceilings.fused_bandwidth
    memory = work.bytes_moved / (fused or ceilings.memory_bandwidth)
    if work.shape and ceilings.processors:
        compute += ceilings.product_bytes_share * memory
    slowest = max(compute, memory, ceilings.kernel_seconds, ceilings.call_seconds)
    bound = "compute" if slowest == compute else "memory" if slowest == memory else "overhead"
    return max(compute, memory, ceilings.kernel_seconds) + ceilings.call_seconds, bound


def _filled(shape: tuple[int, ...], processors: int) -> float:
    """The share of all multiprocessors' time that does useful work.

    The rest is lost to tiles that hang over the edges, a last wave that is not full, and waiting for first operands.
    If few tiles have long sums, as in gradients of weights, libraries split the sums too.
    """
    if not shape or not processors:
        return 1.0
    many, rows, columns, terms = shape
    tiles = many * math.ceil(rows / TILE) * math.ceil(columns / TILE)
    inside = (many * rows * columns) / (tiles * TILE * TILE)
    return inside * max(_busy(tiles * parts, terms / parts, processors) for parts in _splits(terms))


def _splits(terms: int) -> Iterator[int]:
    """The numbers of parts that a sum may be split into."""
    parts = 1
    while parts == 1 or (parts <= MOST_PARTS and terms / parts >= SHORTEST):
        yield parts
        parts += 1


def _busy(tiles: int, terms: float, processors: int) -> float:
    waves = math.ceil(tiles / processors)
    return tiles / (waves * processors) * terms / (terms + FILL)


def step_time(works: Iterable[Work], ceilings: Ceilings, *, flops: float = 0, peak_flops: float = 0) -> StepTime:
    """The time of one step on one device, without communication. The host may take longer than the device."""
    phases: dict[str, float] = {}
    bounds: dict[str, float] = {}
    modules: dict[str, float] = {}
    calls = 0
    for work in works:
        calls += work.calls
        seconds, bound = seconds_of(work, ceilings)
        seconds *= work.calls
        for totals, name in ((phases, work.phase), (bounds, bound), (modules, work.module)):
            totals[name] = totals.get(name, 0.0) + seconds
    computed = sum(phases.values())
    if (host := calls * ceilings.host_seconds) > computed:
        bounds["host"] = host - computed
    return StepTime(
        seconds=max(computed, host),
        phases=phases,
        bounds=bounds,
        modules=dict(sorted(modules.items(), key=lambda item: -item[1])),
        flops_only_seconds=flops / peak_flops if peak_flops else 0.0,
        assumptions=ceilings.assumptions,
    )
