"""What of a run has reached the disk."""

from __future__ import annotations

from surefoot.checkpoint.store import Checkpoints
from surefoot.errors import CheckpointError
from surefoot.training.current_run import CurrentRun
from surefoot.training.reactions.best import Best


class Saved:
    """Follows the checkpoints of a run, which may still be written while the next steps are taken."""

    def __init__(self, current: CurrentRun, checkpoints: Checkpoints, best: Best) -> None:
        self.current, self.checkpoints, self.best = current, checkpoints, best
        self.refused = ""
        """Why the last checkpoint that could not be written was refused."""

    def settle(self) -> None:
        """Waits for a checkpoint that is still being written."""
        try:
            self.checkpoints.wait()
        except CheckpointError as error:
            self.refuse(error)
        self.note()

    def note(self) -> None:
        """Notes a checkpoint that has reached the disk: the run made progress, so earlier failures no longer count."""
        published, best = self.checkpoints.published, self.best.selection.step
        if published > self.current.run.saved_step:
            self.current.change(failures=0, saved_step=published)
            if published >= best > 0:
                self.checkpoints.keep = {best}  # only now may the one that was best before go

    def refuse(self, error: Exception) -> None:
        """A checkpoint could not be written. The run continues and the older ones stay."""
        self.refused = str(error)
        self.current.event("save-failed", self.refused)
