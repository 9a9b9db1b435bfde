"""The live view of a training run: progress, loss, tokens per second, time left."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from surefoot.records.log import LogRow
from surefoot.records.run import Run


class LiveView:
    """Enter it, then call it after every step. On a terminal it is a bar; elsewhere, a line now and then."""

    def __init__(self, steps: int, *, console: Console, every: int | None = None) -> None:
        self.console, self.steps = console, steps
        self.every = every or max(1, steps // 10)
        self._progress = Progress(
            TextColumn("[bold]step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("{task.fields[speed]} tokens/s"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("train", total=steps, loss="-", speed="-")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, run: Run, row: LogRow) -> None:
        loss, speed = f"{row.loss:.4f}", f"{row.tokens / row.seconds:,.0f}"
        self._progress.update(self._task, completed=row.step, loss=loss, speed=speed)
        if not self.console.is_terminal and (row.step % self.every == 0 or row.step in (1, self.steps)):
            self.console.print(f"step {row.step}/{self.steps}  loss {loss}  {speed} tokens/s", highlight=False)
