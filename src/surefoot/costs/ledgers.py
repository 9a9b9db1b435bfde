"""The ledger of a run: the plan against the measurements of its profile and its training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from surefoot.records.event import STOPPED_EARLY
from surefoot.records.ledger import Entry, Ledger
from surefoot.records.plan import Plan, RunCost
from surefoot.records.profile import DeviceMemory, Profile
from surefoot.records.run import Run
from surefoot.records.tally import Account, Tally
from surefoot.records.usage import Peak
from surefoot.records.watched import Watched

TOLERANCES = {
    "allocated": 0.02,
    "device": 0.02,
    "device/used": 0.05,
    "moved": 0.01,
    "step": 0.10,
    "seconds": 0.10,
    "run/step seconds": 0.10,
    "run/dollars": 0.10,
    "checkpoint/seconds": 0.25,
    "checkpoint/bytes": 0.01,
}
"""How far a measurement may differ, as a share of the prediction. Memory, FLOPs and tokens are exact.

Bytes moved differ by the scalars of operators that take lists of tensors on one side and tensors on the other.
"""
FLOORS = {
    "step": 1e-3,
    "seconds": 1e-3,
    "run/step seconds": 1e-3,
    "run/dollars": 0.01,
    "checkpoint/bytes": 2**20,
    "checkpoint/seconds": 0.1,
}
"""Differences below these mean nothing, whatever their share: a millisecond of a step is noise of the machine, a cent
buys nothing, and a checkpoint holds generators, names and hashes besides the state."""
TOTALS = ("run/steps", "run/tokens", "run/samples", "run/dollars")
"""Accounts of all steps of a run."""


def ledger_of(
    plan: Plan | None, profile: Profile | None = None, run: Run | None = None, watched: Watched | None = None
) -> Ledger:
    """Memory by account and phase, FLOPs, seconds, tokens, checkpoints, dollars. An unknown side stays empty."""
    predicted = Tally() if plan is None else plan.tally + _planned_seconds(plan)
    if plan is not None and run is not None:
        predicted = predicted + _planned_run(plan)
    booked: Profile | Watched | None = profile or watched
    measured = Tally() if booked is None else booked.tally + _step_seconds(booked.step_seconds)
    if profile is not None and predicted.total("moved"):
        measured = measured + Tally(
            tuple(each for each in profile.counted.accounts if each.name.startswith("moved/") and each.amount)
        )
    if profile is not None and profile.device_memory is not None:
        measured = measured + _taken_from_device(profile.device_memory)
        if plan is not None:
            predicted = predicted + _planned_on_device(plan, profile.device_memory)
    if run is not None:
        measured = measured + _taken(run, plan, booked=booked is not None)
    ledger = Ledger.of(predicted, measured, tolerances=TOLERANCES, floors=FLOORS, intervals=_intervals(plan))
    ledger = ledger.explained(predicted, measured)
    peaks = _peaks(plan, profile) if plan is not None and profile is not None else ()
    return Ledger((*(_caused(entry, plan, profile, run) for entry in ledger.entries), *peaks))


def _intervals(plan: Plan | None) -> dict[str, tuple[float, float]]:
    """Between which amounts the plan expects the seconds of a step, and what follows from them."""
    known = None if plan is None or plan.time is None else plan.time.interval
    if plan is None or known is None:
        return {}
    seconds = (known.low_seconds, known.high_seconds)
    cost = plan.cost
    priced = {} if cost is None or not cost.dollars else {"run/dollars": _between(cost)}
    return {"step/seconds": seconds, "run/step seconds": seconds, **priced}


def _between(cost: RunCost) -> tuple[float, float]:
    dollars = cost.dollars or 0.0
    return cost.low * dollars, cost.high * dollars


def _planned_seconds(plan: Plan) -> Tally:
    """The planned seconds of a step, if the plan has a time."""
    if plan.time is None:
        return Tally()
    phases = [Account(f"seconds/{name}", seconds, "seconds") for name, seconds in plan.time.phases.items()]
    return Tally.of([*phases, Account("step/seconds", plan.time.seconds, "seconds")])


def _step_seconds(seconds: Sequence[float]) -> Tally:
    return Tally((Account("step/seconds", fmean(seconds), "seconds"),)) if seconds else Tally()


def _taken_from_device(memory: DeviceMemory) -> Tally:
    """What the device's own allocator counted, and what the whole device uses."""
    counted = {
        "requested": memory.requested_bytes,
        "allocated": memory.allocated_bytes,
        "reserved": memory.reserved_bytes,
        "used": memory.used_bytes,
    }
    return Tally.of(
        Account(f"device/{name}", amount, "bytes") for name, amount in counted.items() if amount is not None
    )


def _planned_on_device(plan: Plan, memory: DeviceMemory) -> Tally:
    """The same as planned, for the kind of segments that the device's allocator had. A CPU reserves nothing."""
    planned = {"requested": plan.live_bytes}
    if plan.fit is not None:
        reserved = plan.reserved_bytes[memory.segments]
        planned["allocated"] = plan.allocated_bytes[memory.segments]
        planned |= {"reserved": reserved, "used": reserved + plan.fit.context_bytes}
    return Tally.of(Account(f"device/{name}", amount, "bytes") for name, amount in planned.items())


def _planned_run(plan: Plan) -> Tally:
    """The plan's predictions for the whole run."""
    booked = [Account("checkpoint/bytes", plan.checkpoint_bytes, "bytes")]
    if plan.time is not None:
        booked.append(Account("run/step seconds", plan.time.seconds, "seconds"))
    if plan.cost is not None and plan.cost.dollars is not None:
        booked.append(Account("run/dollars", plan.cost.dollars, "dollars"))
    if plan.steps is not None:
        booked += [
            Account("run/steps", plan.steps, "steps"),
            Account(f"run/{plan.unit}s", plan.steps * plan.tokens_per_step, f"{plan.unit}s"),
        ]
    return Tally.of(booked)


def _taken(run: Run, plan: Plan | None, *, booked: bool) -> Tally:
    """The measurements of a run, with the plan's price per hour. If a step was metered, memory comes from there."""
    amount = Account(f"run/{run.unit}s", run.tokens, f"{run.unit}s")
    taken = [Account("run/steps", run.steps, "steps"), amount]
    if run.steps:
        taken.append(Account("run/step seconds", run.seconds / run.steps, "seconds"))
    if run.saves:
        taken.append(Account("checkpoint/seconds", run.save_seconds / run.saves, "seconds"))
    if run.checkpoint_bytes:
        taken.append(Account("checkpoint/bytes", run.checkpoint_bytes, "bytes"))
    cost = None if plan is None else plan.cost
    if cost is not None and cost.dollars_per_hour:
        taken.append(Account("run/dollars", run.seconds / 3600 * cost.devices * cost.dollars_per_hour, "dollars"))
    if not booked:
        held = {name: amount for name, amount in run.memory_bytes.items() if name != "gradients" and amount}
        taken += [Account(f"memory/{name}", amount, "bytes") for name, amount in held.items()]
    return Tally.of(taken) + run.traffic


def _peaks(plan: Plan, profile: Profile) -> list[Entry]:
    """The peak of each phase. If plan and measurement differ, names the operators at both peaks."""
    entries = []
    for phase, planned in plan.steady.phase_peaks.items():
        seen = profile.steady.phase_peaks.get(phase)
        entry = Entry(f"peak/{phase}", "bytes", planned.peak_bytes, None if seen is None else seen.peak_bytes)
        if seen is not None and entry.agrees is False:
            entry = replace(entry, attribution=f"planned {_moment(planned)}; measured {_moment(seen)}")
        entries.append(entry)
    return entries


def _moment(peak: Peak) -> str:
    return f"in {peak.module or 'the step'} after {peak.operator or 'nothing'}"


def _caused(entry: Entry, plan: Plan | None, profile: Profile | None, run: Run | None) -> Entry:
    """Adds the cause to an entry that differs, if it is known."""
    if entry.account == "checkpoint/bytes" and entry.difference and not entry.is_small:
        return replace(entry, attribution="files of the newest checkpoint", cause="overhead of the format")
    if entry.agrees is not False:
        return entry
    if entry.account == "allocated/peak" and profile is not None and plan is not None:
        return _allocator(entry, plan, profile)
    if entry.account in TOTALS and run is not None and (why := _before_the_end(run)):
        return replace(entry, partial=True, attribution=f"after step {run.steps}", cause=why)
    return entry


def _before_the_end(run: Run) -> str:
    """Why a run took fewer steps than planned; empty if it took all of them, or if nothing says why."""
    if run.status != "finished":
        return f"the run is {run.status}. {run.reason}".strip()
    early = [event.text for event in run.happened() if event.kind == STOPPED_EARLY]
    return f"stopped early, as the recipe asked: {early[-1]}" if early else ""


def _allocator(entry: Entry, plan: Plan, profile: Profile) -> Entry:
    """Explains why the allocator's peak differs from the booked one."""
    booked = profile.steady.peak
    where = f"{booked.phase} of {booked.module or 'the step'}, after {booked.operator}"
    if profile.knobs.get("compile") not in (None, "off", False):
        return replace(
            entry, attribution=where, cause="compiled code keeps and fuses other tensors than the model's code"
        )
    missing = [note for note in plan.assumptions if "workspace" in note]
    return replace(
        entry, attribution=where, cause="; ".join(missing) or "kernels allocated memory that no operator returned"
    )
