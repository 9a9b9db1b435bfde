"""Ranks: what the processes of one training have in common."""

from dataclasses import dataclass


@dataclass(slots=True)
class SharedFile:
    """A file that several ranks have written, or that holds the shards of one rank alone."""

    path: str
    where: str
    writers: int
    ranks: int
    shards: bool
    """What was saved is this rank's share of something larger."""


@dataclass(slots=True)
class Ranks:
    """What several ranks saw of the same steps."""

    count: int
    same_samples: float = 0.0
    """The share of samples that two ranks both saw."""
    same_answers: bool = False
    """In every loss the ranks had the same targets, and not the same in all losses."""
    same_places: float = 0.0
    """Of one pass over the data, the share of samples that another rank's pass reads, too."""
    diverged: tuple[str, ...] = ()
    bypassed: bool = False
    """The model under the wrapper was called, and not the wrapper."""
    same_randomness: bool = False
    local_norms: tuple[float, ...] = ()
    syncs_per_update: float = 0.0
    micro_batches: float = 0.0
    never_synced: bool = False
    target_counts: tuple[int, ...] = ()
    batch_counts: tuple[int, ...] = ()
    reduced_again: str = ""
    by_hand: bool = False
    """The loop exchanges gradients itself."""
    wrapped: bool = False
    scaled_by_count: str = ""
    """The line in which a loss was multiplied or divided by the number of ranks."""
    divided_again: str = ""
    """The line in which gradients that a wrapper had averaged were divided by the number of ranks."""
    counts_all: bool = False
    """A loss was divided by a sum over ranks."""
    mean_weight: float | None = None
    """What the mean over all targets of all ranks counts with; None where ranks have as many targets, or it varies."""
    untold_metrics: bool = False
    """Each rank evaluated samples of its own, and none was told what others had found."""
    last_unsynced: float = 0.0
    """The share of updates in which gradients were exchanged, and not in the last micro-batch."""
    ratios_to_mean: tuple[float, ...] = ()
    """For some updates, how many times the mean over ranks their gradients were, before clipping."""


@dataclass(frozen=True, slots=True)
class RankFacts:
    """All facts of this subject."""

    ranks: Ranks | None = None
    shared_files: tuple[SharedFile, ...] = ()
