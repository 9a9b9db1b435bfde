"""Mixtures: several data sets in fixed shares, each in its own order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from surefoot.data.order import samples_at
from surefoot.errors import DataError


class Mixture(Dataset[Any]):
    """`samples` samples, of which each source contributes its exact share, rounded to whole samples.

    A source that must contribute more samples than it has is repeated in another order. A source that contributes
    fewer is sampled at random. By default, `samples` is the largest number without a repeated sample. Make the mixture
    as long as the run: then no sample repeats while its source still has unused ones.
    """

    draws_randomness = False

    def __init__(
        self, sources: Mapping[str, Any], weights: Mapping[str, float], *, samples: int | None = None, seed: int = 0
    ) -> None:
        if set(sources) != set(weights) or not sources:
            raise DataError(f"sources {', '.join(sources)} and weights {', '.join(weights)} do not have the same names")
        if min(weights.values()) <= 0:
            raise DataError(f"a share must be above 0: {dict(weights)}")
        self.sources, self.seed = dict(sources), seed
        total = sum(weights.values())
        self.shares = {name: weights[name] / total for name in self.sources}
        if samples is None:
            samples = int(min(len(source) / self.shares[name] for name, source in self.sources.items()))
        self.given = dict(zip(self.sources, _apportioned(list(self.shares.values()), samples), strict=True))
        self.starts = np.cumsum([0, *self.given.values()])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, index: int) -> Any:
        ((name, _, inside),) = self.by_source(np.array([index]))
        return self.sources[name][int(inside[0])]

    def __getitems__(self, indices: Sequence[int] | np.ndarray) -> tuple[torch.Tensor, ...]:
        parts, order = [], []
        for name, here, inside in self.by_source(np.asarray(indices)):
            parts.append(self.sources[name].__getitems__(inside))
            order.append(here)
        back = torch.from_numpy(np.argsort(np.concatenate(order)))
        return tuple(torch.cat(tensors)[back] for tensors in zip(*parts, strict=True))

    def by_source(self, indices: np.ndarray) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """For each source of some samples: their positions in `indices`, and their numbers in the source."""
        numbers = np.searchsorted(self.starts, indices, side="right") - 1
        for number, (name, source) in enumerate(self.sources.items()):
            here = np.flatnonzero(numbers == number)
            if here.size:
                positions = indices[here] - self.starts[number]
                yield name, here, samples_at(len(source), self.seed + number, positions)

    def will_need(self, indices: Sequence[int] | np.ndarray) -> None:
        """Asks the kernel to read these samples ahead."""
        for name, _, inside in self.by_source(np.asarray(indices)):
            self.sources[name].will_need(inside)

    def epochs(self) -> dict[str, float]:
        """How many epochs of each source the mixture holds."""
        return {name: self.given[name] / len(source) for name, source in self.sources.items()}

    def identity(self) -> str:
        """A digest of every source and its share."""
        parts = [f"{name} {self.given[name]} of {source.identity()}" for name, source in self.sources.items()]
        return f"mixture {self.seed}: " + "; ".join(parts)


def _apportioned(shares: list[float], samples: int) -> list[int]:
    """Shares as whole samples. The largest remainders are rounded up."""
    exact = np.array(shares) * samples
    whole = np.floor(exact).astype(np.int64)
    short = samples - int(whole.sum())
    whole[np.argsort(whole - exact, kind="stable")[:short]] += 1
    return whole.tolist()
