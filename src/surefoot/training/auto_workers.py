"""Chooses how many loader processes a run needs: it times a few steps, and tries numbers until one keeps up."""

from __future__ import annotations

import math
import os
from statistics import median

from torch.utils.data import Dataset, IterableDataset

from surefoot.recipe.sources import is_source

SKIPPED = 2
"""Steps after each change that are not timed: processes start, and batches are there already."""
TIMED = 5
"""Steps that are timed. Their median counts."""
SHARE, LEAST_SECONDS = 0.05, 0.002
"""A step that waits less than this share of its seconds, or less than these seconds, needs no more processes."""


class AutoWorkers:
    """Sees the seconds of each step. `said` is its choice in one sentence, once it has made one."""

    def __init__(self, *, most: int) -> None:
        self.workers, self.most, self.said = 0, most, ""
        self._seen: list[tuple[float, float]] = []
        self._alone = (0.0, 0.0)

    def see(self, seconds: float, data_seconds: float) -> int | None:
        """A step took these seconds, of which it waited for data. Returns the number of processes to go on with."""
        if self.said:
            return None
        self._seen.append((seconds - data_seconds, data_seconds))
        if len(self._seen) < SKIPPED + TIMED:
            return None
        computed, waited = (median(each) for each in zip(*self._seen[SKIPPED:], strict=True))
        self._seen.clear()
        return self._chosen(computed, waited)

    def _chosen(self, computed: float, waited: float) -> int | None:
        before, keeps_up = self.workers, waited <= max(LEAST_SECONDS, SHARE * (computed + waited))
        if not before:
            self._alone = computed, waited
            if keeps_up:
                self.said = f"workers=0: a step computes {_text(computed)} and waits {_text(waited)} for its data"
                return None
            self.workers = min(self.most, math.ceil(waited / max(computed, 1e-9)))
            return self.workers
        if not keeps_up and before < self.most:
            self.workers = min(
                self.most, max(before + 1, math.ceil(before * (computed + waited) / max(computed, 1e-9)))
            )
            return self.workers
        alone = f"without them it took {_text(sum(self._alone))}, of which it waited {_text(self._alone[1])}"
        if computed + waited >= sum(self._alone):
            self.workers = 0
            self.said = f"workers=0: with {before} a step took {_text(computed + waited)}; {alone}"
            return 0
        limit = "" if keeps_up else f"; {self.most} is the most for the cores here"
        self.said = (
            f"workers={before}: a step takes {_text(computed + waited)} and waits {_text(waited)} for its data; "
            f"{alone}{limit}"
        )
        return None


def why_none(dataset: Dataset[object] | None) -> str:
    """Why a number may not be chosen for this data. Empty if it may."""
    if isinstance(dataset, IterableDataset):
        return "workers=0: the samples of a stream depend on the number of workers; set one"
    if is_source(dataset):
        return "workers=0: data that is made runs in the trainer"
    return ""


def most_workers() -> int:
    """One process for each core that this rank may use, but one core stays for the step."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")) - 1)


def _text(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"
