"""Mixtures: several data sets in stated shares, each in an order of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from surefoot.data.order import sample_ids
from surefoot.errors import DataError


class Mixture(Dataset[Any]):
    """`samples` samples, of which each source gives its share, exactly, to the nearest sample.

    A source that must give more samples than it has begins again, in another order, when all of it was given;
    one that gives fewer gives a random part. By default there are as many samples as can be had without giving
    any twice. Make it as long as the run: then no epoch of the mixture repeats what one source could still give.
    """

    draws_randomness = False

    def __init__(
        self, sources: Mapping[str, Any], weights: Mapping[str, float], *, samples: int | None = None, seed: int = 0
    ) -> None:
        if set(sources) != set(weights) or not sources:
            raise DataError(f"sources {', '.join(sources)} and weights {', '.join(weights)} do not name the same")
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
        ((source, inside),) = self.places([index])
        return self.sources[source][inside]

    def __getitems__(self, indices: Sequence[int] | np.ndarray) -> tuple[torch.Tensor, ...]:
        samples = [self[int(index)] for index in indices]
        return tuple(torch.stack(tensors) for tensors in zip(*samples, strict=True))

    def places(self, indices: Sequence[int] | np.ndarray) -> list[tuple[str, int]]:
        """The source of each sample, and which of the source's samples it is."""
        names = list(self.sources)
        found = []
        for index in np.asarray(indices).tolist():
            number = int(np.searchsorted(self.starts, index, side="right")) - 1
            found.append((names[number], self.inside(number, index - int(self.starts[number]))))
        return found

    def inside(self, number: int, position: int) -> int:
        """Which of its samples a source gives at a position of its own order."""
        source = list(self.sources.values())[number]
        return int(sample_ids(len(source), self.seed + number, position, 1)[0])

    def will_need(self, indices: Sequence[int] | np.ndarray) -> None:
        """Tells the kernel which samples come next."""
        for name, inside in self.places(indices):
            self.sources[name].will_need([inside])

    def epochs(self) -> dict[str, float]:
        """How often each source is gone through."""
        return {name: self.given[name] / len(source) for name, source in self.sources.items()}

    def identity(self) -> str:
        """A digest of every source and its share."""
        parts = [f"{name} {self.given[name]} of {source.identity()}" for name, source in self.sources.items()]
        return f"mixture {self.seed}: " + "; ".join(parts)


def _apportioned(shares: list[float], samples: int) -> list[int]:
    """Whole samples, as near to the shares as whole numbers can be: the largest remainders are rounded up."""
    exact = np.array(shares) * samples
    whole = np.floor(exact).astype(np.int64)
    short = samples - int(whole.sum())
    whole[np.argsort(whole - exact, kind="stable")[:short]] += 1
    return whole.tolist()
