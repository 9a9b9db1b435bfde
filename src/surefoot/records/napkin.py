"""A napkin sum: what can be said of a run from its size alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Napkin:
    """Sums over one cluster. What was not asked for, or cannot be known, is None.

    `all_reduce_seconds` is that of all gradients in float32 by a ring, with nothing hidden behind computation;
    `speedup` what many devices then give over one.
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
