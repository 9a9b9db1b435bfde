"""One row: chooses the size of a recipe that fits this device, plans it, measures it, and compares."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from surefoot.costs.ledgers import ledger_of
from surefoot.hardware.here import HERE
from surefoot.recipe.load import load_recipe
from surefoot.recipe.recipe import Recipe
from surefoot.records.plan import Plan
from surefoot.records.profile import Profile
from surefoot.records.validation import Machine, Row
from surefoot.units import bytes_text
from surefoot.validation.cases import Case, images_in
from surefoot.validation.reasons import reason_of
from surefoot.ways.plan import plan
from surefoot.ways.profile import booked, clocked
from surefoot.world.world import RealWorld

STEPS = 20
"""The most steps that are timed, and about as many as a row takes in all, with those under the meters."""
SHARE_OF_MEMORY = 0.8
"""How full a device may get that has no datasheet, or is shared with the system."""
WORTH_A_CHOICE = 20.0
"""With fewer seconds for a recipe on a CPU, its smallest size is taken: planning others would take too long."""
FASTER_THAN_REAL = 3
"""FLOPs at the rate of a CPU's fastest products are a lower bound: real steps take about three times as long."""


def row_of(case: Case, machine: Machine, *, seconds: float, clock: Callable[[], float] = time.monotonic) -> Row:
    """Plans and measures a recipe in about `seconds`. Of several ranks, the first one plans; all take the steps."""
    began, world = clock(), RealWorld()
    with ExitStack() as stack:
        more = []
        if case.recipe == "fashion":
            more.append(images_in(Path(stack.enter_context(TemporaryDirectory()))))
        size, planned = 0, None
        if world.rank == 0:
            size, planned = chosen(case, machine, more, seconds=seconds, clock=clock)
        if planned is not None and not fits(planned, machine, ranks=case.ranks):
            need = f"{bytes_text(planned.live_bytes)} of {bytes_text(machine.memory_bytes)}"
            return _facts(case, 0, status="skipped", reason=f"the smallest size does not fit: it needs {need}")
        stack.enter_context(world)  # from here on there are other ranks; a plan would not find its own
        left = max(1.0, (seconds - (clock() - began)) / 3)
        size, left = world.hand_out((size, left), 0)
        recipe = load_recipe(case.recipe, [*case.words(size), *more])
        measured, reason = _with_meters(clocked(recipe, timed_steps=STEPS, most_seconds=left), recipe)
    row = _facts(case, size, status="measured", reason=reason)
    return row if planned is None else _compared(row, planned, measured, seconds=clock() - began)


def chosen(
    case: Case, machine: Machine, more: list[str], *, seconds: float, clock: Callable[[], float] = time.monotonic
) -> tuple[int, Plan]:
    """The largest size that fits and whose steps are quick enough, by plan; the smallest, if none is."""
    on, began = target(machine, ranks=case.ranks), clock()
    if on == HERE and seconds < WORTH_A_CHOICE:
        return 0, plan(load_recipe(case.recipe, [*case.words(0), *more]), measure=True)
    found: tuple[int, Plan] | None = None
    for size in range(len(case.sizes)):
        planned = plan(load_recipe(case.recipe, [*case.words(size), *more]), on=on)
        if found is not None and not (
            fits(planned, machine, ranks=case.ranks) and STEPS * step_seconds(planned, machine) < seconds / 2
        ):
            break
        found = size, planned
        if clock() - began > seconds / 8:
            break
    if found is None:
        raise ValueError(f"{case.name} has no sizes")
    size, planned = found
    if on == HERE:  # the rates of this CPU choose a size; its operators, timed one by one, predict the seconds
        planned = plan(load_recipe(case.recipe, [*case.words(size), *more]), measure=True)
    return size, planned


def target(machine: Machine, *, ranks: int) -> str | None:
    """What plans call this device. A GPU without a datasheet is planned as a CPU: its tensors are the same."""
    if machine.datasheet:
        return f"{ranks}x{machine.datasheet}"
    if ranks > 1:
        return f"{ranks}xcpu"
    return HERE if machine.kind == "cpu" else None


def fits(planned: Plan, machine: Machine, *, ranks: int) -> bool:
    """Whether a plan fits. Processes on a CPU share its memory."""
    if planned.fit is not None:
        return planned.fit.fits and planned.fit.total_bytes <= machine.memory_bytes
    sharing = ranks if machine.kind == "cpu" else 1
    return sharing * planned.live_bytes <= SHARE_OF_MEMORY * machine.memory_bytes


def step_seconds(planned: Plan, machine: Machine) -> float:
    """A rough guess of the seconds of a step, to choose a size by."""
    if machine.kind == "cpu":
        flops = planned.steady.tally.total("flops")
        slowest = min(machine.reached_flops.values(), default=1e10)
        return max(planned.time.seconds if planned.time else 0.0, FASTER_THAN_REAL * flops / slowest)
    if planned.time is not None:
        return planned.time.seconds
    return planned.steady.tally.total("flops") / 1e12


def _with_meters(measured: Profile, recipe: Recipe) -> tuple[Profile, str]:
    """Adds what the meters count. If they fail on this device, memory and seconds are still worth having."""
    try:
        return booked(measured, recipe), ""
    except Exception as error:
        return measured, f"the meters failed: {reason_of(error)}"


def _facts(case: Case, size: int, *, status: Literal["measured", "skipped"], reason: str) -> Row:
    return Row(case.name, case.recipe, tuple(case.words(size)), status, reason, ranks=case.ranks)


def _compared(row: Row, planned: Plan, measured: Profile, *, seconds: float) -> Row:
    ideal = planned.time.flops_only_seconds if planned.time is not None else 0.0
    return replace(
        row,
        parameters=planned.parameters,
        tokens_per_step=planned.tokens_per_step,
        unit=planned.unit,
        seconds=seconds,
        ledger=ledger_of(planned, measured),
        step_seconds=measured.step_seconds,
        mfu_planned=ideal / planned.time.seconds if planned.time is not None and ideal else None,
        mfu=ideal / measured.mean_step_seconds if ideal else None,
    )
