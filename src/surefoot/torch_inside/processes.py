"""Processes and loaders: the signal a child gets when its parent dies, and the classes that read a loader's batches."""

from __future__ import annotations

import torch.multiprocessing as mp
from torch.utils.data._utils.fetch import _MapDatasetFetcher
from torch.utils.data.dataloader import _BaseDataLoaderIter

BATCHES = _BaseDataLoaderIter
"""What `iter` of a DataLoader returns, with and without workers."""
FETCHER = _MapDatasetFetcher
"""What reads the samples of a batch by their indices: `fetch(index)`, with `dataset` and `collate_fn`."""


def die_with_parent(signal: int) -> None:
    """Linux sends this process the signal as soon as the parent's thread has ended."""
    mp._prctl_pr_set_pdeathsig(signal)  # type: ignore[attr-defined]
