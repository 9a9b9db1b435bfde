"""Timing: how long a step that was traced takes on a cluster, by its operators and by its communication."""

import math
from collections.abc import Mapping

from surefoot.costs.collectives import with_communication
from surefoot.costs.roofline import ceilings_of, step_time
from surefoot.hardware import Cluster
from surefoot.records.step_time import StepTime
from surefoot.records.usage import Usage


def time_on(
    machines: Cluster, step: Usage, sizes: Mapping[str, int], *, peak_flops: float = 0, attention: str = ""
) -> StepTime:
    """What one rank computes, and the communication that this does not hide.

    `sizes` are the dimensions of the mesh, the one whose neighbours are nearest first; `peak_flops` is what FLOPs alone
    would be divided by; `attention` names the kernel, where it is not the one that torch takes.
    """
    tally = step.tally
    flops = tally.total("flops") - tally.total("flops/recompute")
    ceilings = ceilings_of(machines.device, attention=attention)
    time = step_time(step.work, ceilings, flops=flops, peak_flops=peak_flops)
    return with_communication(time, tally, machines, sizes) if math.prod(sizes.values()) > 1 else time
