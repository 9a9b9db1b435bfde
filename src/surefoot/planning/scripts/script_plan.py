"""The plan of a script, from what its steps took on the card."""

from __future__ import annotations

import math
from dataclasses import replace

from surefoot.costs.run_cost import run_cost
from surefoot.costs.time_on_cluster import time_on
from surefoot.hardware import Cluster, cluster
from surefoot.planning.scripts.script import ScriptTrace
from surefoot.records.plan import LEFT_OUT, Fit, Plan, RunCost
from surefoot.records.step_time import StepTime
from surefoot.records.usage import Usage
from surefoot.units import bytes_text
from surefoot.world.gpu.target import CONTEXT_BYTES

MOST_LINES = 6
"""Of many lines that were answered or held back, so many are named."""


def plan_of(name: str, traced: ScriptTrace, on: str, *, steps: int | None, epochs: float | None) -> Plan:
    """Returns the plan of a traced script, in the form of a recipe's plan."""
    first, steady = traced.steps[0], _steady(traced)
    gpu, ranks = traced.card.gpu, traced.card.ranks
    units = {unit: int(steady.tally.total(f"{unit}/trained")) for unit in ("tokens", "samples")}
    unit = "token" if units["tokens"] else "sample"
    trained = ranks * (units["tokens"] or units["samples"])
    steps = steps or _in_epochs(traced, epochs) or traced.most_steps
    seconds = cost = None
    if gpu is not None:
        machines = cluster(on)
        seconds = _seconds(machines, steady, ranks)
        cost = _cost(machines, seconds, steps, trained)
    return Plan(
        recipe=name,
        about="",
        knobs={},
        parameters=traced.parameters,
        tokens_per_step=trained,
        micro_batches=max(1, traced.backwards[-1]),
        steps=steps,
        first=replace(first, work=()),
        steady=steady,
        init=replace(traced.init, work=()),
        evaluate=replace(traced.after, work=()),
        state_bytes=_state(steady),
        checkpoint_bytes=_state(steady),
        allocated_bytes=traced.allocated_bytes,
        reserved_bytes=traced.reserved_bytes,
        fit=None
        if gpu is None
        else Fit.of(
            gpu.name,
            memory_bytes=gpu.memory_bytes,
            context_bytes=CONTEXT_BYTES,
            reserved_bytes=traced.reserved_bytes,
        ),
        time=seconds,
        cost=cost,
        unit=unit,
        ranks=ranks,
        layout=f"as the script arranges {ranks} ranks" if ranks > 1 else "",
        script=tuple(_said(traced, steps)),
        assumptions=tuple(_assumed(traced)),
    )


def _steady(traced: ScriptTrace) -> Usage:
    """The step with the highest peak after the first: lengths of batches may differ."""
    return max(traced.steps[1:] or traced.steps, key=lambda each: each.peak.peak_bytes)


def _seconds(machines: Cluster, steady: Usage, ranks: int) -> StepTime:
    formats = machines.device.dense_flops
    return time_on(machines, steady, {"dp": ranks}, peak_flops=formats.get("bf16", 0.0))


def _cost(machines: Cluster, seconds: StepTime, steps: int | None, trained: int) -> RunCost | None:
    if steps is None:
        return None
    return run_cost(
        machines,
        steps=steps,
        tokens_per_step=trained,
        step_seconds=seconds.seconds,
        step_interval=seconds.interval,
    )


def _in_epochs(traced: ScriptTrace, epochs: float | None) -> int | None:
    """The steps of some epochs, by the batches of the script's loader and those that a step took from it."""
    fetched = traced.fetched[-1]
    if epochs is None or not traced.loader_batches or not fetched:
        return None
    return math.ceil(epochs * traced.loader_batches / fetched)


def _length(traced: ScriptTrace, steps: int | None) -> str:
    """What is known of the length of the run, where it is not known as a whole."""
    epoch = _in_epochs(traced, 1.0)
    if steps is not None or epoch is None:
        return ""
    return f"an epoch of its loader is {epoch:,} steps; give --epochs or --steps for the time and cost of the run"


def _state(steady: Usage) -> int:
    return int(sum(steady.tally.total(f"memory/{account}") for account in ("parameters", "buffers", "optimizer")))


def _said(traced: ScriptTrace, steps: int | None) -> list[str]:
    """What was looked at, and what was not: the first lines of the plan."""
    updates, card = len(traced.steps), traced.card
    peaks = [each.peak.peak_bytes for each in traced.steps[1:]]
    said = [f"looked at: the script up to its update {updates}" + ("" if traced.ended else "; not at what comes later")]
    if length := _length(traced, steps):
        said.append(length)
    if card.moved:
        said.append("the script names no device: its model and batches were planned as if they were moved to the GPU")
    if card.mixed:
        line, times = next(iter(card.mixed.items()))
        said.append(f"tensors of the host meet tensors of the GPU, which refuses them: {line} ({times} times)")
    if len(peaks) > 1 and max(peaks) != min(peaks):
        spread = f"{bytes_text(min(peaks))} to {bytes_text(max(peaks))}"
        said.append(f"its steps differ: {spread} at their peaks; a later batch may take more")
    if traced.held.notes:
        held = list(traced.held.notes)
        more = f" and {len(held) - MOST_LINES} more" if len(held) > MOST_LINES else ""
        said.append(f"held back: {'; '.join(held[:MOST_LINES])}{more}")
    return said


def _assumed(traced: ScriptTrace) -> list[str]:
    card = traced.card
    policies = card.gpu.policies if card.gpu is not None else ()
    missing = [f"{LEFT_OUT} {', '.join(sorted(card.kernels.unknown))}: the library chooses it on the GPU"]
    return [
        *policies,
        *(f"{note} ({times} times)" for note, times in card.assumptions.items()),
        *(missing if card.kernels.unknown else []),
    ]
