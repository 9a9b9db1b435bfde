"""Timing: how long a traced step takes on a cluster, from its operators and its communication."""

import math
from collections.abc import Mapping
from dataclasses import replace

from surefoot.costs.collectives import with_communication
from surefoot.costs.interval import HERE_UNMEASURED, kind_of, with_interval
from surefoot.costs.roofline import ceilings_of, step_time
from surefoot.costs.time_constants import Constants
from surefoot.hardware import Cluster
from surefoot.hardware.here import HERE
from surefoot.hardware.host_link import REACHED_SHARE, host_link
from surefoot.records.step_time import StepTime
from surefoot.records.usage import Usage


def time_on(
    machines: Cluster,
    step: Usage,
    sizes: Mapping[str, int],
    *,
    peak_flops: float = 0,
    attention: str = "",
    fitted: Constants | None = None,
) -> StepTime:
    """The computation of one rank, plus the communication that does not overlap with it, with an interval.

    `sizes` are the dimensions of the mesh, innermost first. `peak_flops` is the divisor for the time from FLOPs alone.
    `attention` names a kernel other than torch's choice. `fitted` replaces the constants of the time model.
    """
    tally = step.tally
    flops = tally.total("flops") - tally.total("flops/recompute")
    ceilings = ceilings_of(machines.device, attention=attention, fitted=fitted)
    time = step_time(step.work, ceilings, flops=flops, peak_flops=peak_flops)
    if math.prod(sizes.values()) > 1:
        time = with_communication(time, tally, machines, sizes, fitted=fitted)
    if "transfers" in time.bounds:
        time = replace(time, assumptions=(*time.assumptions, _transfers(machines)))
    here = machines.device.name == HERE
    return with_interval(time, HERE_UNMEASURED if here else kind_of(machines.device, fitted), fitted)


def _transfers(machines: Cluster) -> str:
    """What is assumed of transfers between a device and its host."""
    bandwidth, link = host_link(machines.device)
    if not bandwidth:
        return "transfers to host memory as fast as the device's own memory: no source states the link to the host"
    return (
        f"transfers to and from host memory reach {REACHED_SHARE:.0%} of {bandwidth / 1e9:.1f} GB/s ({link}), as much "
        "for each device as for one alone, and nothing is computed meanwhile"
    )
