"""A napkin estimate of a run, from its size alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Napkin:
    """Estimates for one cluster. A number that was not requested, or cannot be known, is None.

    `all_reduce_seconds` is a ring all-reduce of all gradients in float32, with no overlap with computation. `speedup`
    is that of all devices over one, with this all-reduce.
    """

    devices: str
    peak_flops: float
    mfu: float
    held_parameters: float
    parameters: float | None = None
    tokens: float | None = None
    training_flops: float | None = None
    seconds: float | None = None
    dollars: float | None = None
    days: float | None = None
    flops_in_days: float | None = None
    peak_flops_in_days: float | None = None
    gradient_bytes: float | None = None
    all_reduce_seconds: float | None = None
    link_bandwidth: float | None = None
    speedup: float | None = None
