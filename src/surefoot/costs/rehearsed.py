"""Rehearsed: the time of a step, added up from calls that were timed one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from surefoot.records.step_time import StepTime
from surefoot.records.usage import Timed

LIKE = {"loss": "forward", "recompute": "forward", "load": "forward"}
"""Phases whose calls also come from Python and have the same overhead as those of forward."""


def rehearsed_time(
    timed: Sequence[Timed], call_seconds: Mapping[str, float], *, flops: float = 0, peak_flops: float = 0
) -> StepTime:
    """The sum of all calls. `call_seconds` is what a call adds in a step beyond the time it takes alone, by phase.

    It can be negative: backward calls operators from C++, a rehearsal from Python.
    """
    phases: dict[str, float] = defaultdict(float)
    modules: dict[str, float] = defaultdict(float)
    bounds: dict[str, float] = defaultdict(float)
    for each in timed:
        alone = each.calls * (each.seconds or 0.0)
        beside = max(-alone, each.calls * call_seconds.get(LIKE.get(each.phase, each.phase), 0.0))
        phases[each.phase] += alone + beside
        modules[each.module] += alone + beside
        bounds["products" if each.is_product else "other operators"] += alone
        bounds["overhead"] += beside
    return StepTime(
        seconds=sum(phases.values()),
        phases=dict(phases),
        bounds=dict(bounds),
        modules=dict(sorted(modules.items(), key=lambda item: -item[1])),
        flops_only_seconds=flops / peak_flops if peak_flops else 0.0,
        assumptions=_assumptions(timed, call_seconds),
    )


def _assumptions(timed: Sequence[Timed], call_seconds: Mapping[str, float]) -> tuple[str, ...]:
    beside = ", ".join(f"{phase} {seconds * 1e6:+.1f} us" for phase, seconds in call_seconds.items())
    calls = sum(each.calls for each in timed)
    missing = sorted({each.operator for each in timed if each.seconds is None})
    return (
        f"{len(timed)} of {calls} operator calls were timed on this machine; the others repeat them",
        f"time added to each call in a step: {beside}",
        *((f"no time for {', '.join(missing)}",) if missing else ()),
    )
