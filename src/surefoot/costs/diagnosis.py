"""Diagnosis: finds in a run's records what slows it down or will end it, most important first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from surefoot.records.finding import Finding, Severity
from surefoot.records.log import LogRow
from surefoot.records.tally import Tally
from surefoot.units import bytes_text, counted, seconds_text

WAITING = 0.10
"""Report waiting for data from this share of a step on."""
HANDED_OVER, STARTED = 2e-3, 10.0
"""Seconds: what it takes to hand a batch over from another process, and to start such processes. Both assumed. Workers
save nothing if a step waits for less than the first, or the whole run for less than the second."""
GROWN_ROWS, GROWN = 200, 0.05
"""Memory grows if a log of at least this many steps gained this share from its second quarter to its last."""
OWN = "surefoot"


@dataclass(frozen=True)
class Signs:
    """What is known of a loop: counts and tallies of some steps, and where its time went.

    `counted`, `kept` and `micro_batches` are of one step.
    """

    where: str
    step_seconds: float = 0.0
    data_seconds: float = 0.0
    micro_batches: int = 1
    counted: Tally = Tally()
    kept: Tally = Tally()
    rows: tuple[LogRow, ...] = ()
    graph_breaks: tuple[str, ...] = ()
    recompilations: int = 0
    device: str = ""
    steps: int = 0
    """Of the whole run; 0 if that is unknown."""

    @property
    def severity(self) -> Severity:
        """The severity of what wastes an accelerator's time. On a CPU it only shows what would."""
        return "info" if self.device == "cpu" else "warning"


def diagnose(signs: Signs) -> tuple[Finding, ...]:
    """First what ends a run, then what costs time, the most costly first."""
    looks = (_growing, _waiting, _reducing, _asking, _breaking)
    found = [weighed for look in looks for weighed in look(signs)]
    return tuple(finding for _, finding in sorted(found, key=lambda weighed: -weighed[0]))


def said_once(found: Iterable[Finding], diagnosed: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings of checks, without those that the diagnosis reports under another name."""
    said = {_SAME.get(each.check) for each in diagnosed}
    return tuple(each for each in found if each.check not in said)


_SAME = {"tensors-kept-from-step-to-step": "kept-losses"}
Weighed = Iterator[tuple[float, Finding]]


def _growing(signs: Signs) -> Weighed:
    """Finds tensors that outlive their step, or a process that grows from step to step."""
    places = {name: n for name, n in signs.kept.under("kept").items() if n}
    if places:
        held = [account for account in signs.kept.accounts if account.name.startswith("kept/")]
        most = max(held, key=lambda account: account.amount)
        _, phase, operator = most.name.split("/", 2)
        yield (
            10.0,
            Finding(
                "tensors-kept-from-step-to-step",
                "error",
                f"{counted(int(sum(each.amount for each in held)), 'tensor')} of earlier steps still live, "
                f"made in {phase} by {operator}",
                signs.where,
                "each holds its graph; memory grows with every step until the run dies",
                "append loss.item() or loss.detach(), not the loss itself",
            ),
        )
    elif (slope := memory_slope(signs.rows)) is not None:
        yield (
            9.0,
            Finding(
                "memory-grows",
                "error",
                f"memory grows by {bytes_text(slope)} a step, to {bytes_text(signs.rows[-1].memory_bytes or 0)}",
                signs.where,
                "a run that keeps growing runs out of memory",
                "look for a list or dict that keeps tensors: append loss.item(), not the loss itself",
            ),
        )


def _waiting(signs: Signs) -> Weighed:
    seconds, waited = signs.step_seconds, signs.data_seconds
    if signs.rows:
        seconds, waited = (sum(getattr(row, name) for row in signs.rows) for name in ("seconds", "data_seconds"))
        seconds, waited = seconds / len(signs.rows), waited / len(signs.rows)
    share = waited / seconds if seconds else 0.0
    steps = max(signs.steps, len(signs.rows))
    in_all = waited * steps
    if share >= WAITING and waited >= HANDED_OVER and (in_all >= STARTED or not steps):
        at_stake = f"{seconds_text(waited)} of {seconds_text(seconds)}"
        at_stake += f", {seconds_text(in_all)} in {counted(steps, 'step')}" if steps else ""
        yield (
            share,
            Finding(
                "waiting-for-data",
                signs.severity,
                f"{share:.0%} of a step is spent waiting for data: {at_stake}",
                signs.where,
                f"nothing is trained meanwhile; without the wait a step would take {seconds_text(seconds - waited)}",
                "raise workers (num_workers of a DataLoader), or preprocess the data once before training",
            ),
        )


def _reducing(signs: Signs) -> Weighed:
    backwards, reduced = signs.counted.total("backwards/all"), signs.counted.total("backwards/reduced")
    if backwards > 1 and reduced > 1:
        yield (
            0.09,
            Finding(
                "gradients-reduced-in-every-micro-batch",
                "warning",
                f"gradients are reduced in {reduced:.0f} of the {backwards:.0f} backwards of a step; one is enough",
                signs.where,
                f"{reduced - 1:.0f} of {reduced:.0f} all-reduces of all gradients are wasted",
                "run all but the last micro-batch inside model.no_sync()",
            ),
        )


def _asking(signs: Signs) -> Weighed:
    """Finds lines that ask for a tensor's value in each micro-batch. Once per step is cheap."""
    times: dict[str, float] = {}
    for account in signs.counted.accounts:
        kind, *rest = account.name.split("/", 2)
        if kind == "syncs" and rest[0] != "evaluate" and rest[1] != OWN:
            times[rest[1]] = times.get(rest[1], 0) + account.amount
    for where, often in times.items():
        if often >= max(2, signs.micro_batches):
            finding = Finding(
                "value-asked-in-every-micro-batch",
                signs.severity,
                f"the value of a tensor is read {counted(int(often), 'time')} in a step",
                where,
                "on an accelerator each .item() waits for all queued work; then the device idles",
                "keep a running sum as a tensor, and read its value only now and then",
            )
            yield 0.05 + often * 1e-6, finding


def _breaking(signs: Signs) -> Weighed:
    if signs.graph_breaks:
        yield (
            0.04,
            Finding(
                "graph-breaks",
                "warning",
                f"{counted(len(signs.graph_breaks), 'graph break')}; the first: {signs.graph_breaks[0]}",
                signs.where,
                "compiled code falls back to Python there, and no kernel is fused across it",
                "remove what cannot be traced, or leave that module uncompiled",
            ),
        )
    if signs.recompilations:
        yield (
            0.045,
            Finding(
                "recompilations",
                "warning",
                f"{counted(signs.recompilations, 'graph')} compiled again after the first step",
                signs.where,
                "every new shape or flag is compiled again, which takes longer than many steps",
                "pad to a few shapes, or set compile_dynamic=true",
            ),
        )


def memory_slope(rows: Sequence[LogRow]) -> float | None:
    """Bytes by which the process grows per step; None if it does not grow, or if there are too few steps.

    Compares quarters of the log without the first, which includes the warmup.
    """
    held = [row.memory_bytes for row in rows if row.memory_bytes is not None]
    if len(held) < GROWN_ROWS:
        return None
    quarter = len(held) // 4
    middles = [median(held[number * quarter : (number + 1) * quarter]) for number in range(1, 4)]
    if not middles[0] < middles[1] < middles[2] or middles[2] - middles[0] < GROWN * middles[0]:
        return None
    return (middles[2] - middles[0]) / (2 * quarter)


def first_of(findings: Iterable[Finding]) -> Finding | None:
    """The finding to fix first: errors before warnings, else in the given order."""
    ranked = sorted(findings, key=lambda each: ("error", "warning", "info").index(each.severity))
    return ranked[0] if ranked else None
