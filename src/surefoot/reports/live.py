"""The live view of a training run: progress, loss, gradient norm, speed, waiting for data, time left."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column

from surefoot.records.log import LogRow
from surefoot.records.run import Run
from surefoot.units import bytes_text, seconds_text

if TYPE_CHECKING:
    from typing_extensions import Self

_RECENT = 50
"""The steps whose mean time says how long the rest takes."""


class LiveView:
    """Enter it, then call it after every step. It shows a bar on a terminal; elsewhere, a line now and then.

    A `warning` is shown with the first step.
    """

    def __init__(self, steps: int, *, console: Console, every: int | None = None, warning: str = "") -> None:
        self.console, self.steps, self.warning = console, steps, warning
        self.every = every or max(1, steps // 10)
        self._told_memory = False
        self._seconds: deque[float] = deque(maxlen=_RECENT)
        cut = Column(no_wrap=True, overflow="ellipsis", ratio=1)  # a narrow terminal shows the most important first
        self._progress = Progress(
            TextColumn("[bold]step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=8),
            TextColumn("{task.fields[line]}", table_column=cut, markup=False),
            console=console,
            disable=not console.is_terminal,
            expand=True,
        )
        self._task = self._progress.add_task("train", total=steps, line="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, run: Run, row: LogRow) -> None:
        if not self._told_memory:
            self._told_memory = True
            if self.warning:
                self.console.print(self.warning, style="yellow", highlight=False)
            for line in (*run.choices, memory_line(run)):
                self.console.print(line, style="dim", highlight=False)
        self._seconds.append(row.seconds)
        left = (self.steps - row.step) * sum(self._seconds) / len(self._seconds)
        line = step_line(run, row, left=left)
        self._progress.update(self._task, completed=row.step, line=line)
        if not self.console.is_terminal and (row.step % self.every == 0 or row.step in (1, self.steps)):
            self.console.print(f"step {row.step}/{self.steps}  {line}", highlight=False)


def step_line(run: Run, row: LogRow, *, left: float) -> str:
    """One step: loss, seconds left, gradient norm, learning rate, speed, MFU if the device's peak is known, data."""
    parts = [
        *([] if row.loss is None else [f"loss {row.loss:.4f}"]),
        f"{seconds_text(max(1, round(left)))} left" if left else "done",
        *([] if row.grad_norm is None else [f"norm {row.grad_norm:.3g}"]),
        f"lr {row.lr:.3g}",
        f"{row.tokens / row.seconds:,.0f} {run.unit}s/s",
        f"data {row.data_seconds / row.seconds:.0%}",
    ]
    utilisation = mfu(run, row)
    if utilisation is not None:
        parts.insert(-1, f"MFU {utilisation:.1%}")
    scored = [f"{name} {metric_text(value)}" for name, value in row.metrics.items()]
    if row.evaluation_loss is not None:
        scored.insert(0, f"held-out {held_out_text(run, row.evaluation_loss)}")
    scored += [f"train {name} {metric_text(value)}" for name, value in row.train_metrics.items()]
    return "  ".join([*parts[:1], *scored, *parts[1:]])


def metric_text(value: float) -> str:
    """A metric with as many digits as a person compares."""
    return f"{value:.4f}" if abs(value) < 1000 else f"{value:,.1f}"


def held_out_text(run: Run, loss: float) -> str:
    """A held-out loss; for text also in bits per byte."""
    bits = run.bits_per_byte(loss)
    return f"{loss:.4f}" if bits is None else f"{loss:.4f} = {bits:.4f} bits/byte"


def mfu(run: Run, row: LogRow) -> float | None:
    """Model FLOPs of a step, divided by its seconds and the device's dense peak; None for an unknown device."""
    return run.step_flops / row.seconds / run.peak_flops if run.step_flops and run.peak_flops else None


def memory_line(run: Run) -> str:
    """The memory of the run by account, and the formula of its MFU."""
    accounts = ", ".join(f"{name} {bytes_text(amount)}" for name, amount in run.memory_bytes.items() if amount)
    peak = (
        "" if run.peak_flops is None else f"; MFU = model FLOPs / seconds / {run.peak_flops / 1e12:,.0f} TFLOP/s dense"
    )
    return f"memory: {accounts}{peak}"
