"""Results: what all runs of a probed script showed, and the numbers that its evaluation printed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev, stdev
from typing import NamedTuple

from surefoot.debug.probe.order import Change, Ran, Roles
from surefoot.records.finding import Finding
from surefoot.records.probed import Experiment

PERMUTED = 20
FEWEST_PERMUTED = 5
TAIL = 0.3
"""The share of a run's last updates whose losses are compared."""
FEWEST_UPDATES = 20
_HIGHER = re.compile(
    r"acc|auc|auroc|iou|f1|recall|precision|map\b|hits?\b|r2\b|score|psnr|ssim|bleu|rouge|dice|corr|top.?\d", re.I
)
_LOWER = re.compile(r"loss|err|mae|mse|rmse|nll|ppl|perplexity|wer\b|cer\b|fid\b|bpc|bpb", re.I)
_NAME = re.compile(r"[A-Za-z][\w@/.-]*(?=[^A-Za-z]*$)")


@dataclass(frozen=True)
class Results:
    """The look at the first updates, the whole run, and the runs with something changed; None for what did not run."""

    look: Ran
    base: Ran | None = None
    copies: tuple[tuple[Change, Ran], ...] = ()
    """Those of the whole run's last evaluation."""
    seed: Ran | None = None
    fixed: Ran | None = None
    shifted: dict[int, Ran] = field(default_factory=dict)
    one_batch: Ran | None = None
    one_batch_copies: tuple[tuple[Change, Ran], ...] = ()
    frozen: tuple[Ran, ...] = ()

    @property
    def roles(self) -> Roles:
        """What the leaves of a batch are."""
        return self.look.roles

    @property
    def controls(self) -> list[Ran]:
        """Copies in which nothing was changed."""
        return of_kind(self.copies, "none")


class Verdict(NamedTuple):
    """A row of the table, and what it means if it is bad."""

    experiment: Experiment
    finding: Finding | None = None


def of_kind(copies: Iterable[tuple[Change, Ran]], kind: str) -> list[Ran]:
    """The copies that underwent one kind of change and came to their end."""
    return [ran for change, ran in copies if change.kind == kind and not ran.error]


class Metric(NamedTuple):
    """A number that an evaluation printed, beside the same number with permuted targets."""

    label: str
    where: str
    value: float
    mean: float
    spread: float
    """The standard deviation with permuted targets."""
    better: int
    """1 if higher is better, -1 if lower is, 0 if its name does not say."""

    @property
    def z(self) -> float:
        """How far it is from its mean with permuted targets, in standard deviations. Positive is better, if known."""
        apart = (self.value - self.mean) * (self.better or 1)
        if apart == 0:
            return 0.0
        return apart / self.spread if self.spread else float("inf") * apart

    @property
    def told(self) -> str:
        """In words."""
        return f"{self.label} {self.value:.4g}; permuted {self.mean:.4g} ± {self.spread:.2g}"


def metrics_of(copies: Sequence[tuple[Change, Ran]]) -> list[Metric]:
    """The printed numbers that respond to permuted targets. Numbers that differ between equal copies are left out."""
    controls, permuted = (of_kind(copies, kind) for kind in ("none", "targets"))
    if len(controls) < 2 or len(permuted) < FEWEST_PERMUTED:
        return []
    values, again = (_numbers(each) for each in controls[:2])
    changed = [_numbers(each) for each in permuted if each.changed]
    found = []
    for key, (label, where, value) in values.items():
        if key not in again or again[key][2] != value or value != value:
            continue
        null = [each[key][2] for each in changed if key in each and each[key][2] == each[key][2]]
        if len(null) >= FEWEST_PERMUTED and any(abs(each - value) > 1e-6 * max(abs(value), abs(each)) for each in null):
            found.append(Metric(label, where, value, fmean(null), pstdev(null), _better(label)))
    return found


def _numbers(ran: Ran) -> dict[tuple[str, int, int], tuple[str, str, float]]:
    seen: Counter[str] = Counter()
    found = {}
    for line in ran.lines:
        before = line.text.split("#")
        for place, value in enumerate(line.numbers):
            found[line.text, seen[line.text], place] = (_label(before, place), line.where, value)
        seen[line.text] += 1
    return found


def _label(before: Sequence[str], place: int) -> str:
    """The name that stands before a number, or the whole line."""
    named = _NAME.search(before[place]) if place < len(before) else None
    if named is None:
        return f"number {place + 1} of '{'#'.join(before)[:40]}'"
    ahead = before[place][: named.start()].rstrip().rpartition(" ")[2]
    whole = ahead in ("val", "valid", "validation", "test", "eval", "dev")
    return f"{ahead} {named[0]}" if whole else named[0].rstrip(".")


def _better(label: str) -> int:
    return 1 if _HIGHER.search(label) else -1 if _LOWER.search(label) else 0


def tail(ran: Ran, updates: int) -> list[float]:
    """The losses of the last part of the first so many updates."""
    last = min(updates, len(ran.losses))
    return list(ran.losses[int(last * (1 - TAIL)) : last])


def noise_of(tails: Sequence[Sequence[float]]) -> float:
    """How much a mean loss differs by chance: between seeds, within a run, and at least by a hundredth of itself."""
    means = [fmean(each) for each in tails]
    within = stdev(tails[0]) / len(tails[0]) ** 0.5 if len(tails[0]) > 1 else 0.0
    between = stdev(means) if len(means) > 1 else 0.0
    return max(within, between, 0.01 * abs(fmean(means)), 1e-12)


def gap(lower: float, higher: float, start: float) -> float:
    """How far one loss lies below another, relative to it; of losses below 0, to how far they fell."""
    if lower >= 0 and higher > 0:
        return 1 - lower / higher
    return (higher - lower) / max(abs(higher), abs(start - lower), 1e-12)


def name_of(path: str, roles: Roles, entry: str) -> str:
    """A leaf, as people call it: `item 1 of the batch`, `label`, `argument 0 of the model`."""
    inner = re.findall(r"\['([^']*)'\]", path)
    if inner:
        return f"`{inner[-1]}`"
    number = re.match(r"\[(\d+)\]", path)
    of = "the batch" if entry == "loader" else "the call"
    if number is None:
        return of
    return f"{'item' if entry == 'loader' else 'argument'} {number[1]} of {of}"
