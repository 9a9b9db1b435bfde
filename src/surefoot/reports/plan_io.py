"""What a run reads and writes beside its steps: the samples that its loader must give, and its checkpoints."""

from __future__ import annotations

import math

from surefoot.costs.saving import saving_seconds
from surefoot.records.plan import LoaderPace, Plan
from surefoot.units import bytes_text, counted, seconds_text


def loader_text(plan: Plan) -> str:
    """The samples a second that the loader of a rank must give, and what it gives here. Empty if that is unknown."""
    needed, given = plan.needed_samples_per_second, plan.loader
    if needed is None:
        return ""
    each = "the loader" if plan.ranks == 1 else "the loader of each rank"
    said = f"{each} must give {_speed(needed)}"
    if given is None:
        return said
    said += f"; here one process gives {_speed(given.samples_per_second)}"
    return f"{said}: {_too_slow(needed, given)}" if given.samples_per_second < needed else said


def _too_slow(needed: float, given: LoaderPace) -> str:
    if not given.parallel:
        return "steps wait for it"
    workers = math.ceil(needed / given.samples_per_second)
    return f"steps wait for it, unless {counted(workers, 'process')} as fast as this one load (workers={workers})"


def _speed(samples: float) -> str:
    return f"{float(f'{samples:.3g}'):,.6g} samples/s"


def loader_note(plan: Plan) -> str:
    """How the loader was timed. Empty if it was not."""
    if plan.loader is None:
        return ""
    return (
        f"the loader was timed here on {counted(plan.loader.samples, 'sample')}, in one process that prepares none "
        "ahead; other storage or other cores give another speed"
    )


def checkpoint_text(plan: Plan) -> str:
    """How large a checkpoint is, and how long it takes to be written. Empty if there is none."""
    return f"a checkpoint of {bytes_text(plan.checkpoint_bytes)}: {saving_text(plan)}" if plan.checkpoint_bytes else ""


def saving_text(plan: Plan) -> str:
    """`15 s at 100 MB/s, 1.5 s at 1 GB/s`: how long a checkpoint takes to be written."""
    times = saving_seconds(plan.checkpoint_bytes) if plan.checkpoint_bytes else {}
    return ", ".join(f"{seconds_text(taken)} at {speed}" for speed, taken in times.items())
