"""Run cost: steps, days, dollars, energy; failures, the best interval between checkpoints, goodput."""

from __future__ import annotations

import math

from surefoot.hardware import Cluster
from surefoot.records.plan import RunCost
from surefoot.records.step_time import Interval

FAILURES_PER_DEVICE_HOUR = 419 / (54 * 24 * 16384)
"""Llama 3 405B: 419 unexpected interruptions in 54 days on 16,384 H100 (arXiv 2407.21783, section 3.3.4)."""

RESTART_SECONDS = 600.0
"""From a failure to the first step after it, without the steps that are repeated. Assumed."""


def best_interval(save_seconds: float, failures_per_second: float) -> float:
    """Seconds between checkpoints that lose the least (Young, with Daly's correction for long saves)."""
    mean = 1 / failures_per_second
    if save_seconds >= mean / 2:
        return mean
    ratio = save_seconds / (2 * mean)
    return math.sqrt(2 * save_seconds * mean) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_seconds


def run_cost(
    cluster: Cluster,
    *,
    steps: int,
    tokens_per_step: int,
    step_seconds: float,
    step_interval: Interval | None = None,
    evaluation_seconds: float = 0.0,
    save_seconds: float = 0.0,
    save_interval_seconds: float | None = None,
    failures_per_device_hour: float = FAILURES_PER_DEVICE_HOUR,
    restart_seconds: float = RESTART_SECONDS,
) -> RunCost:
    """The cost of the whole run. `evaluation_seconds` is the total; each save stops training for `save_seconds`.

    The run is as uncertain as one of its steps.
    """
    working = steps * step_seconds
    failures_per_second = failures_per_device_hour * cluster.count / 3600
    interval = save_interval_seconds
    if interval is None and failures_per_second and save_seconds:
        interval = best_interval(save_seconds, failures_per_second)
    saves = save_seconds / interval if interval else 0.0
    # On average a failure comes in the middle between two saves.
    lost_per_failure = restart_seconds + (interval + save_seconds if interval else 0.0) / 2
    lost = min(0.99, failures_per_second * lost_per_failure)  # a run that only fails would never end
    seconds = (working * (1 + saves) + evaluation_seconds) / (1 - lost)
    hours = seconds / 3600
    price = cluster.dollars_per_hour or None
    watts = cluster.device.watts
    return RunCost(
        steps=steps,
        tokens=steps * tokens_per_step,
        devices=cluster.count,
        step_seconds=step_seconds,
        evaluation_seconds=evaluation_seconds,
        save_seconds=working * saves,
        seconds=seconds,
        goodput=working / seconds if seconds else 1.0,
        failures=failures_per_second * seconds,
        save_interval_seconds=interval,
        device_hours=hours * cluster.count,
        dollars=None if price is None else hours * cluster.count * price,
        dollars_per_hour=price,
        kilowatt_hours=hours * cluster.count * watts / 1000 if watts else None,
        assumptions=(
            f"{failures_per_device_hour * 1e6:.1f} failures per million device-hours (Llama 3 405B on 16,384 H100), "
            f"{restart_seconds / 60:.0f} min to restart",
            *(() if price is None else (f"{price:.2f} dollars per device-hour",)),
            *((f"{watts:.0f} W per device, without its host",) if watts else ()),
        ),
        low=1.0 if step_interval is None else step_interval.low_seconds / step_seconds,
        high=1.0 if step_interval is None else step_interval.high_seconds / step_seconds,
    )
