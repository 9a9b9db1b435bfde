"""Ranks: what the processes of one training have in common."""

from dataclasses import dataclass


@dataclass(slots=True)
class SharedFile:
    """A file that several ranks wrote, or that holds the shards of a single rank."""

    path: str
    where: str
    writers: int
    ranks: int
    shards: bool
    """The saved state is only this rank's part of a sharded state."""


@dataclass(slots=True)
class Ranks:
    """What several ranks saw in the same steps."""

    count: int
    same_samples: float = 0.0
    """The share of samples that two ranks both saw."""
    same_answers: bool = False
    """In every loss the ranks had equal targets, and targets differ between losses."""
    same_places: float = 0.0
    """The share of samples in one pass over the data that another rank reads, too."""
    diverged: tuple[str, ...] = ()
    bypassed: bool = False
    """The loop called the model inside the wrapper instead of the wrapper."""
    same_randomness: bool = False
    local_norms: tuple[float, ...] = ()
    syncs_per_update: float = 0.0
    micro_batches: float = 0.0
    never_synced: bool = False
    compared: bool = False
    """The notes of other ranks were read."""
    target_counts: tuple[int, ...] = ()
    batch_counts: tuple[int, ...] = ()
    reduced_again: str = ""
    by_hand: bool = False
    """The loop exchanges gradients itself."""
    wrapped: bool = False
    scaled_by_count: str = ""
    """The line that multiplied or divided a loss by the number of ranks."""
    divided_again: str = ""
    """The line that divided gradients by the number of ranks after a wrapper had averaged them."""
    counts_all: bool = False
    """A loss was divided by a sum over ranks."""
    mean_weight: float | None = None
    """The weight that the mean over the targets of all ranks would use; None if ranks have equal counts, or it varies.
    """
    untold_metrics: bool = False
    """Each rank evaluated its own samples, and no rank got the results of others."""
    last_unsynced: float = 0.0
    """The share of updates whose gradients were exchanged, but not in the last micro-batch."""
    ratios_to_mean: tuple[float, ...] = ()
    """For some updates: their gradients before clipping, divided by the mean over ranks."""


@dataclass(frozen=True, slots=True)
class RankFacts:
    """All facts of this subject."""

    ranks: Ranks | None = None
    shared_files: tuple[SharedFile, ...] = ()
