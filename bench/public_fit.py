"""Fit: the constants of the time model, fitted to published speeds and held out source by source.

The model is that of `surefoot.costs`, in arrays, so that one row takes microseconds; `agrees` checks that both say the
same. Each source has the weight of the square root of its rows, so that no table outvotes all others. Errors count by
size, not squared: a row that something unknown slowed down must not bend the rest. `USUAL` says where a constant stays
if no row decides it.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy
import public_speeds as speeds
from public_recipes import Row

import surefoot.costs
from surefoot.costs import collectives, roofline
from surefoot.costs.attention import attention_share
from surefoot.costs.time_constants import Constants, Spread

STEP_TIMES = Path(__file__).parents[1] / "docs" / "measured" / "step-time.md"
"""Has the errors of steps on this machine, by `bench/plan_time.py`."""
PLAN_MEMORY = STEP_TIMES.with_name("plan-memory.md")
"""Has the memory of compiled steps on this machine, by `bench/plan_memory.py --compiled`."""
LABS = 3
"""With fewer sources than this nothing is held out."""
FILE = Path(surefoot.costs.__file__).with_name("time_constants.json")
USUAL = {
    "8.0": (0.88, 0.08),
    "9.0": (0.75, 0.12),
    "old": (0.90, 0.10),
    "memory_share": (0.75, 0.15),
    "fused_share": (0.85, 0.10),
    "product_bytes_share": (0.5, 0.5),
    "host_seconds": (7e-6, 0.5),
    "link_share": (0.75, 0.15),
    "beside_share": (0.20, 0.7),
}
"""Each constant: where it starts, and how far (as a share of itself) it goes for one percent of error. `old` is what
products of torch 2.0 and before reach of today's; plans do not use it."""
ENDS = {
    **dict.fromkeys(("8.0", "9.0", "old"), (0.5, 1.0)),
    **dict.fromkeys(("memory_share", "fused_share", "link_share"), (0.3, 0.95)),
    **dict.fromkeys(("product_bytes_share", "beside_share"), (0.01, 1.0)),
    "host_seconds": (1e-6, 3e-5),
}
COVERED = (0.1, 0.9)


def constants_of(
    values: dict[str, float], spreads: dict[str, Spread] | None = None, *, of: Row | None = None
) -> Constants:
    """The constants of plans; with `of`, those of a row, whose software may be old."""
    times = values["old"] if of is not None and speeds.software_of(of).old else 1.0
    shares = {name: times * value for name, value in values.items() if name[0].isdigit()}
    others = {name: value for name, value in values.items() if not name[0].isdigit() and name != "old"}
    return Constants(product_share=shares, **others, spreads=spreads or {})


# ------------------------------------------------------------------------------------------- a row in arrays


class Timed:
    """A row whose seconds are a quick function of the constants."""

    def __init__(self, row: Row, made: Row) -> None:
        self.row, self.made, self.step = row, made, speeds.step_of(row, made)
        self.lab, self.compiled = speeds.lab_of(row), made["compiled"]
        self.seconds = speeds.tokens_of(row) / speeds.published(row)
        self.machines = speeds.machines_of(row)
        self._operators()
        self._collectives()

    def _operators(self) -> None:
        sheet, works = self.machines.device, self.step.work
        one = Constants({sheet.compute_capability: 1.0, "-": 1.0}, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0)
        self.fastest, _ = roofline.reached_share(sheet, one)
        self.generation = sheet.compute_capability
        attends = attention_share(sheet, speeds.attention_of(self.row)) or roofline.ATTENTION_SHARE * self.fastest
        products, exacts, attention, moved = [], [], [], []
        for work in works:
            peaks = sheet.dense_flops
            peak = peaks.get(work.format) or peaks.get("fp32") or max(peaks.values())
            filled = roofline._filled(work.shape, sheet.processors)
            is_attention = "attention" in work.operator
            attention.append(work.flops / peak / attends / filled if is_attention else 0.0)
            exact = not peaks.get(work.format) or work.format == "fp32"
            plain = 0.0 if is_attention else work.flops / peak / filled
            products.append(0.0 if exact else plain / self.fastest)
            exacts.append(plain / roofline.EXACT_SHARE if exact else 0.0)
            moved.append(work.bytes_moved / sheet.memory_bandwidth)
        self.products, self.moved = numpy.array(products), numpy.array(moved)
        self.fixed = numpy.array(attention) + numpy.array(exacts)
        self.adds = numpy.array([bool(work.shape and sheet.processors) for work in works])
        self.fused = numpy.array([work.operator == "fused" for work in works])
        self.calls = numpy.array([work.calls for work in works])
        self.names = sorted({work.phase for work in works})
        self.phase = numpy.array([self.names.index(work.phase) for work in works])

    def _collectives(self) -> None:
        """By phase: the seconds of latency, those of bytes over whole links, and the share of the phase beside it."""
        self.sent: list[tuple[int, float, float, float]] = []
        sizes = speeds.sizes_of(self.row)
        if math.prod(sizes.values()) == 1 or (self.machines.nodes > 1 and self.machines.network is None):
            return
        whole = Constants({"-": 1.0}, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0)
        tally = self.step.tally
        for at, phase in enumerate(self.names):
            flops = tally.total(f"flops/{phase}")
            for kind, dimension, count, size in collectives._collectives(tally, phase):
                group = collectives._group(self.machines, sizes, dimension)
                both = count * collectives.seconds_of(kind, size / count, self.machines, group, fitted=whole)
                late = count * collectives.seconds_of(kind, 0, self.machines, group, fitted=whole)
                beside = tally.total(f"overlap/{kind}/{dimension}/{phase}")
                self.sent.append((at, late, both - late, beside / flops if flops else 0.0))

    def taken(self, values: dict[str, float]) -> float:
        """The seconds of a step with these constants."""
        share = values.get(self.generation) or statistics.median(values[each] for each in values if each[0].isdigit())
        share *= values["old"] if speeds.software_of(self.row).old else 1.0
        compute = self.products / share + self.fixed
        memory = self.moved / numpy.where(self.fused, values["fused_share"], values["memory_share"])
        each = numpy.where(self.adds, compute + values["product_bytes_share"] * memory, compute)
        each = numpy.maximum(numpy.maximum(each, memory), roofline.KERNEL_SECONDS) * self.calls
        phases = numpy.bincount(self.phase, each, len(self.names))
        left, waiting = phases.copy(), 0.0
        for at, late, bytes_, beside in self.sent:
            seconds = late + bytes_ / values["link_share"]
            hidden = min(seconds, left[at], phases[at] * beside)
            left[at] -= hidden
            waiting += seconds - hidden + values["beside_share"] * hidden
        host = values["host_seconds"] * self.calls.sum()
        whole = max(phases.sum() + waiting, host)
        once = phases[self.names.index("update")] if "update" in self.names else 0.0
        once += waiting if speeds.software_of(self.row).reduces_once else 0.0
        return self.row.get("grad_accum", 1) * (whole - once) + once

    def miss(self, values: dict[str, float]) -> float:
        """The logarithm of measured over predicted seconds."""
        return math.log(self.seconds / self.taken(values))

    def own_miss(self) -> float:
        """The miss of the constants that plans use."""
        return math.log(self.seconds / speeds.seconds_of(self.row, speeds.taken_by(self.row, self.step)))

    def own_interval(self) -> tuple[float, float]:
        """The interval that a plan shows."""
        taken = speeds.taken_by(self.row, self.step)
        if taken.interval is None:
            return 0.0, 0.0
        ends = taken.interval.low_seconds, taken.interval.high_seconds
        return math.log(ends[0] / taken.seconds), math.log(ends[1] / taken.seconds)

    def agrees(self, values: dict[str, float]) -> bool:
        """Whether surefoot's own model says the same."""
        said = speeds.seconds_of(self.row, speeds.taken_by(self.row, self.step, constants_of(values, of=self.row)))
        return math.isclose(said, self.taken(values), rel_tol=1e-6)


# ------------------------------------------------------------------------------------------- fitting


def fitted(rows: Sequence[Timed]) -> dict[str, float]:
    """The constants with the least weighted error, by trying larger and smaller values of each in turn."""
    counts = Counter(row.lab for row in rows)
    weights = [1 / math.sqrt(counts[row.lab]) for row in rows]
    total = sum(weights)

    def cost(values: dict[str, float]) -> float:
        missed = sum(weight * abs(row.miss(values)) for weight, row in zip(weights, rows, strict=True)) / total
        far = sum((math.log(values[name] / usual) / width) ** 2 for name, (usual, width) in USUAL.items())
        return missed + 0.01 * far

    values = {name: usual for name, (usual, _) in USUAL.items()}
    best, step = cost(values), 0.3
    while step > 0.004:
        better = False
        for name in values:
            for factor in (1 + step, 1 / (1 + step)):
                low, high = ENDS[name]
                tried = {**values, name: min(high, max(low, values[name] * factor))}
                if (tried_cost := cost(tried)) < best - 1e-9:
                    values, best, better = tried, tried_cost, True
        step = step if better else step / 2
    return values


@dataclass(frozen=True)
class HeldOut:
    """A row predicted by constants that its source did not see, and the interval from the errors of other sources."""

    row: Timed
    miss: float
    low: float
    high: float

    @property
    def error_pct(self) -> float:
        """Of tokens per second."""
        return 100 * (math.exp(self.miss) - 1)

    @property
    def inside(self) -> bool:
        return self.low <= self.miss <= self.high


def held_out(rows: Sequence[Timed]) -> list[HeldOut]:
    """Every row, predicted without its source."""
    labs = sorted({row.lab for row in rows})
    misses: dict[int, float] = {}
    for lab in labs:
        values = fitted([row for row in rows if row.lab != lab])
        misses |= {id(row): row.miss(values) for row in rows if row.lab == lab}
    made = []
    for row in rows:
        low, high = spread([(each.lab, misses[id(each)]) for each in rows if each.lab != row.lab])
        made.append(HeldOut(row, misses[id(row)], low, high))
    return made


def spread(misses: Sequence[tuple[str, float]]) -> tuple[float, float]:
    """The interval that covers 80% of the misses, each source with the weight of the square root of its rows."""
    counts = Counter(lab for lab, _ in misses)
    ordered = sorted((miss, 1 / math.sqrt(counts[lab])) for lab, miss in misses)
    total = sum(weight for _, weight in ordered)
    ends = []
    for share in COVERED:
        gone = 0.0
        for miss, weight in ordered:
            gone += weight
            if gone >= share * total - 1e-9:
                ends.append(miss)
                break
    return ends[0], ends[1]


# ------------------------------------------------------------------------------------------- what is told and written


def predicted(rows: Sequence[Timed]) -> list[Row]:
    """Every row with its held-out prediction; of one source alone, with that of the constants that plans use."""
    if len({row.lab for row in rows}) < LABS:
        return [_told(row, row.own_miss(), *row.own_interval()) for row in rows]
    return [_told(each.row, each.miss, each.low, each.high) for each in held_out(rows)]


def _told(row: Timed, miss: float, low: float, high: float) -> Row:
    stated = speeds.published(row.row)
    taken = speeds.taken_by(row.row, row.step)
    return {
        **{key: value for key, value in row.made.items() if key != "step"},
        "predicted": stated * math.exp(miss),
        "error_pct": 100 * (math.exp(miss) - 1),
        "inside": low <= miss <= high,
        "interval": (math.exp(low), math.exp(high)),
        "bounds": {name: each / taken.seconds for name, each in taken.bounds.items()},
    }


def by_lab(rows: list[Row]) -> list[str]:
    """A line for each source: how far its rows are off, on average with their sign, and how many are covered."""
    labs: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if "error_pct" in row:
            labs[row["lab"]].append(row)
    lines = []
    for lab, of in sorted(labs.items()):
        sizes = [abs(row["error_pct"]) for row in of]
        middle, inside = statistics.median(row["error_pct"] for row in of), sum(row["inside"] for row in of)
        lines.append(
            f"speed, held out, {lab}: {len(of)} rows, median {statistics.median(sizes):.1f}% ({middle:+.1f}%), "
            f"worst {max(sizes):.1f}%, {inside} inside the interval"
        )
    if labs:
        medians = [statistics.median(abs(row["error_pct"]) for row in of) for of in labs.values()]
        lines.append(f"speed, held out, each source once: median of medians {statistics.median(medians):.1f}%")
    return lines


def write_constants(rows: Sequence[Timed]) -> None:
    """Fits the constants to all rows, and writes them with the spreads of held-out errors."""
    values = {name: float(f"{value:.3g}") for name, value in fitted(rows).items()}
    assert all(row.agrees(values) for row in rows), "the model in arrays is not that of surefoot.costs"
    misses = [(each.row, each.miss) for each in held_out(rows)]
    spreads = {}
    spreads["known device"] = _spread(misses, "published runs, each predicted without its own source")
    told = "published runs, each predicted without any run on its generation of GPUs"
    spreads["other device"] = _spread(_without_generation(rows), told)
    spreads |= _on_this_machine()
    spreads["compiled memory"] = _compiled_memory(rows)
    plain = asdict(constants_of(values, spreads))
    FILE.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {FILE.name}: {values}")


def _spread(misses: Sequence[tuple[Timed, float]], of: str) -> Spread:
    low, high = spread([(row.lab, miss) for row, miss in misses])
    labs = len({row.lab for row, _ in misses})
    told = f"from the errors of {len(misses)} {of}, of {labs} sources"
    return Spread(round(math.exp(low), 3), round(math.exp(high), 3), len(misses), labs, told)


def _without_generation(rows: Sequence[Timed]) -> list[tuple[Timed, float]]:
    """The misses of rows whose generation of GPUs no other row in the fit has."""
    made = []
    for generation in sorted({row.generation for row in rows}):
        values = fitted([row for row in rows if row.generation != generation])
        values.pop(generation, None)
        made += [(row, row.miss(values)) for row in rows if row.generation == generation]
    return made


def _compiled_memory(rows: Sequence[Timed]) -> Spread:
    """How the memory of compiled runs relates to the plan of the step as written: published, and on this machine."""
    misses = []
    for row in rows:
        if row.compiled and row.row.get("peak_mem_unit") == "GiB":
            kind = "allocated_bytes" if row.row["peak_mem_kind"] == "active" else "reserved_bytes"
            segments = (
                "expandable" if row.lab == "torchtitan" and not row.row["id"].startswith("tt-165-") else "classic"
            )
            misses.append((row.lab, math.log(row.row["peak_mem_value"] * 2**30 / row.made[kind][segments])))
    published = len(misses)
    for line in PLAN_MEMORY.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 7 and "/" in cells[0] and cells[1][:1].isdigit():
            misses += [("here", math.log(float(cells[at]) / float(cells[1]))) for at in (3, 5)]
    low, high = spread(misses)
    of = f"from the errors of {len(misses)} compiled runs, {published} of them published"
    return Spread(round(math.exp(low), 3), round(math.exp(high), 3), len(misses), len({lab for lab, _ in misses}), of)


def _on_this_machine() -> dict[str, Spread]:
    """The spreads of `--measure` and `--on here`, from the held-out cases of their measured page."""
    found: dict[str, list[float]] = {"rehearsed": [], "here": []}
    for line in STEP_TIMES.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 7 and cells[-1] == "yes":
            for kind, cell in zip(("here", "rehearsed"), cells[4:6], strict=True):
                found[kind].append(-math.log(1 + float(cell.rstrip("%")) / 100))
    what = {"rehearsed": "--measure", "here": "--on here"}
    spreads = {}
    for kind, misses in found.items():
        low, high = spread([("here", miss) for miss in misses])
        middle = 0.0 if low <= 0 <= high else statistics.median(misses)
        of = f"from the errors of {what[kind]} in {len(misses)} steps of {len(misses) // 2} models on one machine"
        ends = (round(math.exp(end), 3) for end in (low, high))
        spreads[kind] = Spread(*ends, len(misses), 1, of, round(math.exp(middle), 3))
    return spreads
