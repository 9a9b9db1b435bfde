"""Two runs compared: how they were made, the first step at which their logs differ, and what replaying it showed."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from surefoot.records.data_identity import DataIdentity
from surefoot.records.log import LogRow
from surefoot.records.run import Run
from surefoot.records.trace import Operation

ROUNDING = (
    "layout",
    "torch",
    "threads",
    "device",
    "use_deterministic_algorithms",
)
"""What may differ between two runs that should agree, besides settings, and changes their numbers by rounding."""
_EXACT, _NEAR = ("tokens", "samples_digest", "batch_digest", "lr", "updated"), ("loss", "grad_norm")
MOST_LISTED = 3
"""How many operations of only one of two traces are listed."""
Cause = Literal["batch", "parameters", "arithmetic", "update", "none"]


@dataclass(frozen=True)
class Unlike:
    """Something about how two runs were made that is not the same."""

    what: str
    first: str
    second: str


@dataclass(frozen=True)
class FirstStep:
    """The first step whose rows differ, and in what."""

    step: int
    fields: tuple[Unlike, ...]


@dataclass(frozen=True)
class PartedAt:
    """The first operation whose results differ."""

    phase: str
    module: str
    operation: str
    first_line: str
    second_line: str
    largest: float | None
    """The largest difference of any element. None if the values were not kept."""
    relative: float | None
    """The same as a share of the largest value."""
    only_first: tuple[str, ...] = ()
    """Operations before it that only one of the two ran, with their lines."""
    only_second: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        here: Operation,
        there: Operation,
        apart: tuple[float, float] | None,
        only_first: tuple[str, ...],
        only_second: tuple[str, ...],
    ) -> "PartedAt":
        """The place of a pair of operations, with their largest difference."""
        largest, relative = (None, None) if apart is None else apart
        lines = here.line, there.line
        few = only_first[:MOST_LISTED], only_second[:MOST_LISTED]
        return cls(here.phase, here.module, here.name, *lines, largest, relative, *few)


@dataclass(frozen=True)
class Replayed:
    """A step of both runs, taken again in this process from a state that was the same, where there is one."""

    step: int
    from_step: int
    cause: Cause
    """What differed first: the batch, the parameters before the step, the arithmetic, or only the update."""
    said: str
    """What exactly differed."""
    parted: PartedAt | None
    as_logged: tuple[bool, bool]
    """Whether replaying gave the numbers of each run's log, bit for bit."""


@dataclass(frozen=True)
class Compared:
    """Whether two runs agree. `tolerance` is 0 if they must agree bit for bit; `why` says why that is asked."""

    first: str
    second: str
    steps: int
    tolerance: float
    why: str
    largest: float
    """The largest relative difference of a loss or gradient norm in the steps that agree."""
    unlike: tuple[Unlike, ...]
    difference: FirstStep | None
    replayed: Replayed | None = None
    not_replayed: str = ""

    @property
    def agrees(self) -> bool:
        return self.difference is None


@dataclass(frozen=True)
class Scripts:
    """Whether two scripts compute the same in their first updates. `step` is 0 if they do."""

    first: str
    second: str
    updates: int
    step: int = 0
    cause: Cause = "none"
    said: str = ""
    parted: PartedAt | None = None

    @property
    def agrees(self) -> bool:
        return not self.step


def unlike(one: Run, other: Run) -> tuple[Unlike, ...]:
    """What differs in how two runs were made, most telling first."""
    pairs: list[tuple[str, object, object]] = [("recipe", one.recipe, other.recipe)]
    if one.source_digest != other.source_digest:
        pairs.append(("code of the recipe", f"{one.source}", f"{other.source}"))
    for name in sorted({*one.module_digests, *other.module_digests}):
        here, there = (each.module_digests.get(name, "not imported")[:12] for each in (one, other))
        pairs.append((f"code in {name}", here, there))
    before, after = {**one.knobs, **one.settings}, {**other.knobs, **other.settings}
    for name in sorted({*before, *after}):
        pairs.append((name, before.get(name, "not given"), after.get(name, "not given")))
    pairs += [
        ("data", *_told_apart(one.data_identity, other.data_identity)),
        ("evaluation data", *_told_apart(one.evaluation_identity, other.evaluation_identity)),
        ("skipped batches", list(one.passed_over), list(other.passed_over)),
        ("layout", one.layout, other.layout),
        ("device", one.device, other.device),
        ("torch", one.torch_version, other.torch_version),
        ("threads", one.threads, other.threads),
    ]
    flags = one.determinism.keys() & other.determinism.keys()
    pairs += [(name, one.determinism[name], other.determinism[name]) for name in sorted(flags)]
    told = {**one.environment, **other.environment}.keys() - {"torch"}
    pairs += [(name, one.environment.get(name, "unknown"), other.environment.get(name, "unknown")) for name in told]
    return tuple(Unlike(what, str(here), str(there)) for what, here, there in pairs if here != there)


def _told_apart(one: DataIdentity | None, other: DataIdentity | None) -> tuple[str, str]:
    """Two data sets in words; the same words if nothing shows that they differ."""
    if one is None or other is None or not one.is_same(other):
        first = one.first_unlike(other) if one and other else ""
        return str(one), "; ".join(filter(None, (str(other), first)))
    return str(one), str(one)


def tolerance_for(one: Run, other: Run, *, settings: Collection[str]) -> tuple[float, str]:
    """How near two runs must be, and why: bit for bit, unless something differs that changes rounding.

    `settings` names the settings of a recipe that change rounding.
    """
    rounded = [each.what for each in unlike(one, other) if each.what in ROUNDING or each.what in settings]
    if not rounded:
        return 0.0, "same layout, torch, threads and device"
    single = all(run.settings.get("precision", "32-true") == "32-true" for run in (one, other))
    return 1e-4 if single else 1e-2, f"rounding differs: {', '.join(rounded)}"


def first_step(
    one: Sequence[LogRow], other: Sequence[LogRow], tolerance: float, *, same_cut: bool = True
) -> tuple[int, float, FirstStep | None]:
    """How many steps both logs hold, the largest difference before they part, and the step where they do.

    Batches are hashed by micro-batch, so with micro-batches of other sizes only their sample numbers are compared.
    """
    there = {row.step: row for row in other}
    common = [(row, there[row.step]) for row in one if row.step in there]
    largest = 0.0
    for here, found in common:
        fields = tuple(_unlike_fields(here, found, tolerance, same_cut))
        if fields:
            return len(common), largest, FirstStep(here.step, fields)
        largest = max(largest, *(relative(getattr(here, name), getattr(found, name)) for name in _NEAR))
    return len(common), largest, None


def _unlike_fields(one: LogRow, other: LogRow, tolerance: float, same_cut: bool) -> Iterable[Unlike]:
    for name in _EXACT:
        here, there = getattr(one, name), getattr(other, name)
        skipped = name.endswith("digest") and ("" in (here, there) or (name == "batch_digest" and not same_cut))
        if here != there and not skipped:
            yield Unlike(name, str(here), str(there))
    for name in _NEAR:
        here, there = getattr(one, name), getattr(other, name)
        if not relative(here, there) <= tolerance:
            yield Unlike(name, repr(here), repr(there))


def relative(here: float | None, there: float | None) -> float:
    """The difference of two numbers as a share of the larger one. Two NaN, or a missing one, are no difference."""
    if here is None or there is None or repr(here) == repr(there):
        return 0.0
    if not (math.isfinite(here) and math.isfinite(there)):
        return math.inf
    return abs(here - there) / max(abs(here), abs(there))
