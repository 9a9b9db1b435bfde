"""How sure a plan is: what its numbers were compared with, and all that it assumed."""

from __future__ import annotations

from collections.abc import Iterator

from surefoot.hardware import datasheet
from surefoot.records.plan import Plan

ON_CPU = "memory: within 0.02% of torch's CPU allocator in 332 of 333 cases"
"""docs/measured/plan-memory.md; a test compares the figures."""
ON_GPU = "memory: modelled; median error 0.25% in 40 published runs"
"""docs/measured/public-runs.md; a test compares the figures."""
ON_AMD = "memory: modelled as on CUDA; no run on an AMD GPU was compared"
OF_SCRIPT = "memory: modelled; no plan of a script was compared with a GPU"

CUT = "with cp, 4 of 6 plans of published runs were 48% to 68% too fast"
"""docs/measured/public-runs.md; a test compares the figures."""
NOT_TIMED = "no step that offloads was timed"


def sure_of(plan: Plan) -> str:
    """In one sentence for memory and one for time."""
    memory = ON_CPU if plan.fit is None else OF_SCRIPT if plan.script else ON_GPU
    if plan.fit is not None and datasheet(plan.fit.device).architecture:
        memory = ON_AMD
    if plan.script and plan.fit is None:
        memory = "memory: as this CPU would take it"
    if plan.time is None or plan.time.interval is None:
        return memory
    errors = plan.time.interval.of.partition(",")[0].removeprefix("from the errors of ")
    unlike = list(_unlike(plan))
    if unlike:
        return f"{memory}\ntime: may take longer than the interval says: {'; '.join(unlike)}"
    return f"{memory}\ntime: 4 of 5 like steps in the interval, by {errors}"


def _unlike(plan: Plan) -> Iterator[str]:
    """What none of the steps does from whose errors the interval was made."""
    if "cp=" in plan.layout:
        yield CUT
    if plan.host is not None:
        yield NOT_TIMED


def all_assumptions(plan: Plan) -> tuple[str, ...]:
    """Those of time and cost, and those of memory."""
    of_time = () if plan.time is None else plan.time.assumptions
    of_cost = () if plan.cost is None else plan.cost.assumptions
    return (*of_time, *of_cost, *plan.assumptions)
