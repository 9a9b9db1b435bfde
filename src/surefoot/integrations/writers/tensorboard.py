"""tensorboard: scalars in RUN/tensorboard. Needs the package tensorboard; view: `tensorboard --logdir runs`."""

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from surefoot.plain_files import own_folder
from surefoot.records.codec import to_json
from surefoot.records.run import Run


class Writer:
    """An event file in the run's own directory."""

    def start(self, run: Run) -> None:
        self._events = SummaryWriter(str(own_folder(Path(run.path) / "tensorboard")))
        self._events.add_text("run", f"```json\n{to_json(run)}\n```")

    def write(self, step: int, numbers: dict[str, float]) -> None:
        for name, number in numbers.items():
            self._events.add_scalar(name, number, step)

    def end(self, *, finished: bool) -> None:
        self._events.close()
