"""Finds which samples of a data set a loader reads in one pass, and in which order."""

from __future__ import annotations

import copy
from itertools import islice
from typing import Any

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from surefoot.checks.engine.types import AnyLoader


def places_of(loader: AnyLoader, dataset: Any) -> list[int] | None:
    """The indices that one pass reads, in order. A sampler with a state is copied before it is asked.

    None if samples are drawn with replacement. A plain shuffle is treated as no shuffle.
    """
    batches: Any = loader.batch_sampler
    sampler: Any = batches.sampler if type(batches) is BatchSampler else batches or loader.sampler
    if isinstance(sampler, WeightedRandomSampler) or (isinstance(sampler, RandomSampler) and sampler.replacement):
        return None
    if isinstance(sampler, SequentialSampler | RandomSampler):
        return list(range(len(dataset)))
    if type(sampler) is not DistributedSampler:
        sampler = copy.deepcopy(sampler, {id(dataset): dataset})
    found = list(islice(sampler, len(dataset) + 1))  # some are endless
    return [place for batch in found for place in batch] if found and isinstance(found[0], list) else found
