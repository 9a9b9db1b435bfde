"""Series: numbers that a script prints or logs under one name, and what can be said of how they change."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

SHARES = frozenset({"accuracy", "auc", "coverage", "dice", "error rate", "f1", "iou", "map", "mrr", "ndcg"})
"""Numbers between 0 and 1, or 0 and 100."""
HIGHER = frozenset({"accuracy", "auc", "correlation", "dice", "f1", "iou", "map", "mrr", "ndcg", "r2"})
"""The higher the better, and never more than 1."""
DISTANCES = frozenset({"mae", "mape", "mse", "rmse"})
LOSSES = frozenset({"loss", "bce", "cross entropy", "ctc", "nll", *DISTANCES})


@dataclass(slots=True)
class Series:
    """Numbers that the script prints, logs or sends to a tracker at one line under one name."""

    name: str
    kind: str
    """Which metric it is: "accuracy", "loss", "cross entropy" and so on."""
    where: str
    phase: str = ""
    """"train" or "held out"; empty if its name and its line do not tell."""
    printed: bool = True
    """It was read from text, rounded. If not, it was passed on as a number."""
    training: int = 0
    """The number of updates made before the training that it belongs to."""
    updates: tuple[int, ...] = ()
    """The number of updates made before each value."""
    values: tuple[float, ...] = ()
    """Percent are shares: 93% is 0.93."""
    decimals: tuple[int, ...] = ()
    """How many digits after the point are known of each value."""
    untrained: int = 0
    """How many of the first values came from a model that ran and had neither been trained nor loaded."""

    @property
    def shares(self) -> tuple[float, ...]:
        """The values as shares, also if they are percent without the sign."""
        return tuple(each / 100 for each in self.values) if max(self.values, default=0) > 1.5 else self.values

    @property
    def moments(self) -> int:
        """After how many different numbers of updates there is a value."""
        return len(set(self.updates))

    @property
    def is_finite(self) -> bool:
        return all(map(math.isfinite, self.values))

    def between(self, first: int, last: int) -> tuple[float, ...]:
        """The values that came after `first` to `last` updates."""
        return tuple(each for at, each in zip(self.updates, self.values, strict=True) if first <= at <= last)

    def shown(self, number: int) -> str:
        """A value as it was printed."""
        return f"{self.values[number]:.{min(self.decimals[number], 6)}f}"


def fall(values: Sequence[float]) -> float:
    """How far the last third of the values lies below the first third, on average."""
    third = max(1, len(values) // 3)
    return (sum(values[:third]) - sum(values[-third:])) / third


def trend(values: Sequence[float]) -> float:
    """The rank correlation of values with their order: 1 if each is above all before it, -1 if each is below."""
    ranks, count = _ranks(values), len(values)
    middle = (count - 1) / 2
    both = sum((place - middle) * (rank - middle) for place, rank in enumerate(ranks))
    squares = sum((place - middle) ** 2 for place in range(count)) * sum((rank - middle) ** 2 for rank in ranks)
    return both / math.sqrt(squares) if squares else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    """The place of each value in their order; equal ones share the mean of theirs."""
    ordered = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(ordered):
        end = start
        while end < len(ordered) and values[ordered[end]] == values[ordered[start]]:
            end += 1
        for place in ordered[start:end]:
            ranks[place] = (start + end - 1) / 2
        start = end
    return ranks
