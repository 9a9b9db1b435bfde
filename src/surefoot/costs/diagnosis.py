"""Diagnosis: what slows a run down or will end it, read from its records; what to change first stands first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from surefoot.records.finding import Finding, Severity
from surefoot.records.log import LogRow
from surefoot.records.tally import Tally
from surefoot.records.units import bytes_text, counted, seconds_text

WAITING = 0.10
"""The share of a step spent waiting for data from which on it is worth a change."""
GROWN_ROWS, GROWN = 200, 0.05
"""A log of so many steps whose memory has grown by this share from its second quarter to its last grows."""
OWN = "surefoot"


@dataclass(frozen=True)
class Signs:
    """What is known of a loop: the counts and the tallies of some of its steps, and how it spent its time.

    `counted` and `kept` are of one step. `micro_batches` are those of a step.
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

    @property
    def severity(self) -> Severity:
        """Of what costs an accelerator time. On a CPU it tells what would cost one, and what a small step costs."""
        return "info" if self.device == "cpu" else "warning"


def diagnose(signs: Signs) -> tuple[Finding, ...]:
    """What ends a run before what costs it time; of the latter, what costs most first."""
    looks = (_growing, _waiting, _reducing, _asking, _breaking)
    found = [weighed for look in looks for weighed in look(signs)]
    return tuple(finding for _, finding in sorted(found, key=lambda weighed: -weighed[0]))


def said_once(found: Iterable[Finding], diagnosed: Iterable[Finding]) -> tuple[Finding, ...]:
    """What checks found, without what a diagnosis says of the same in other words."""
    said = {_SAME.get(each.check) for each in diagnosed}
    return tuple(each for each in found if each.check not in said)


_SAME = {"tensors-kept-from-step-to-step": "kept-losses"}
Weighed = Iterator[tuple[float, Finding]]


def _growing(signs: Signs) -> Weighed:
    """Tensors that outlive their step, or a process that grows from step to step."""
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
                "a run that grows is ended by the machine sooner or later",
                "look for a list or dict that keeps tensors: append loss.item(), not the loss itself",
            ),
        )


def _waiting(signs: Signs) -> Weighed:
    seconds, waited = signs.step_seconds, signs.data_seconds
    if signs.rows:
        seconds, waited = (sum(getattr(row, name) for row in signs.rows) for name in ("seconds", "data_seconds"))
        seconds, waited = seconds / len(signs.rows), waited / len(signs.rows)
    share = waited / seconds if seconds else 0.0
    if share >= WAITING:
        yield (
            share,
            Finding(
                "waiting-for-data",
                signs.severity,
                f"{share:.0%} of a step is spent waiting for data: {seconds_text(waited)} of {seconds_text(seconds)}",
                signs.where,
                f"nothing is trained meanwhile; without the wait a step would take {seconds_text(seconds - waited)}",
                "raise workers (num_workers of a DataLoader), or do the work once before training",
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
                f"{reduced - 1:.0f} of {reduced:.0f} all-reduces of all gradients are thrown-away traffic",
                "run all but the last micro-batch inside model.no_sync()",
            ),
        )


def _asking(signs: Signs) -> Weighed:
    """Places that ask for a value in each micro-batch; what is asked once per step is cheap."""
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
                f"a tensor is asked for its value {counted(int(often), 'time')} in a step",
                where,
                "on an accelerator each .item() waits until all that was queued is done; it then idles",
                "keep a running sum as a tensor, and ask for its value once in a while",
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
                "compiled code falls back to Python there, and is fused on each side alone",
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
                "every new shape or flag is compiled anew, which takes longer than many steps",
                "pad to a few shapes, or set compile_dynamic=true",
            ),
        )


def memory_slope(rows: Sequence[LogRow]) -> float | None:
    """Bytes by which each step makes the process larger; None where it does not, or too few steps say so.

    Quarters of the log are compared: warming up takes place in the first, and is no growth.
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
    """What to change first: an error before a warning, in the order given."""
    ranked = sorted(findings, key=lambda each: ("error", "warning", "info").index(each.severity))
    return ranked[0] if ranked else None
