"""Measures how strongly the rows of one array depend on those of another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

SHUFFLES = 40
_MOST_FEATURES = 2048
_FEW_VALUES = 64
"""Up to this many different whole numbers are names, not amounts."""


def dependence(inputs: np.ndarray, targets: np.ndarray) -> float:
    """The distance covariance of two arrays' rows (Szekely et al. 2007), in standard deviations of shuffled rows.

    Independent rows give about 0, whatever their distributions. It is also 0 if all rows of one array are alike.
    """
    ours, theirs = _centred(_distances(inputs)), _centred(_distances(targets))
    if not ours.any() or not theirs.any():
        return 0.0
    drawn = np.random.default_rng(0)
    orders = [drawn.permutation(len(ours)) for _ in range(SHUFFLES)]
    chance = np.array([(ours * theirs[np.ix_(order, order)]).mean() for order in orders])
    return float(((ours * theirs).mean() - chance.mean()) / (chance.std() + 1e-12))


def waves(pictures: np.ndarray) -> Iterator[np.ndarray]:
    """The amplitude of each wave in each image, whatever its phase; nothing for rows of other shapes."""
    if pictures.ndim >= 3 and min(pictures.shape[-2:]) >= 4 and pictures.dtype.kind == "f":
        yield np.abs(np.fft.rfft2(pictures)).astype(np.float64)


def _distances(rows: np.ndarray) -> np.ndarray:
    """Distances between all rows: the share of names that differ, or the Euclidean distance of scaled amounts."""
    flat = rows.reshape(len(rows), -1)
    flat = flat[:, :: max(1, flat.shape[1] // _MOST_FEATURES)]
    if flat.dtype.kind in "iub" and len(np.unique(flat)) <= _FEW_VALUES:
        return np.stack([(flat != row).mean(1) for row in flat])
    scaled = flat.astype(np.float64)
    scaled = (scaled - scaled.mean(0)) / (scaled.std(0) + 1e-12)
    squares = (scaled**2).sum(1)
    return np.sqrt(np.maximum(squares[:, None] + squares[None] - 2 * scaled @ scaled.T, 0))


def _centred(distances: np.ndarray) -> np.ndarray:
    return distances - distances.mean(0) - distances.mean(1)[:, None] + distances.mean()
