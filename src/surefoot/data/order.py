"""The order of samples: a keyed permutation of the global sample index, computed and never stored."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

_ROUNDS = 6
_BLOCK = 4096  # a call costs about as much for one index as for a thousand
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # this and the next two: splitmix64 (Steele, Lea, Flood, 2014)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_ALL_BITS = (1 << 64) - 1


def sample_ids(samples: int, seed: int, first: int, count: int) -> np.ndarray:
    """The samples at positions `first` to `first + count - 1` of an endless run, as int64.

    Position `p` is in epoch `p // samples`. Every epoch holds each sample once, in its own order.
    """
    if samples < 1:
        raise ValueError(f"an order of {samples} samples")
    block, start = divmod(first, _BLOCK)
    if start + count <= _BLOCK:
        return _block(samples, seed, block)[start : start + count].copy()
    return samples_at(samples, seed, np.arange(first, first + count))


def samples_at(samples: int, seed: int, positions: np.ndarray) -> np.ndarray:
    """The samples at any positions of an endless run, as int64."""
    epochs, index = np.divmod(positions.astype(np.uint64), np.uint64(samples))
    one = epochs.size > 0 and bool((epochs == epochs[0]).all())
    return permuted(index, samples, epoch_key(seed, int(epochs[0]) if one else epochs)).astype(np.int64)


def permuted(index: np.ndarray, samples: int, key: int | np.ndarray) -> np.ndarray:
    """Applies the permutation of `range(samples)` with this key to each index; as uint64.

    A Feistel network over the smallest power of two that holds `samples`, walked along its cycle until the
    result is a sample (Black and Rogaway, 2002): a bijection of any size, with no table.
    """
    index, keys = np.asarray(index, np.uint64), np.asarray(key, np.uint64)
    bits = max(samples - 1, 0).bit_length()
    places = _network(index, keys, bits)
    outside = np.flatnonzero(places >= samples)
    while outside.size:
        places[outside] = _network(places[outside], keys[outside] if keys.ndim else keys, bits)
        outside = outside[places[outside] >= samples]
    return places


def epoch_key(seed: int, epoch: int | np.ndarray) -> np.ndarray:
    """The key of an epoch's permutation; for an array of epochs, an array of keys."""
    with np.errstate(over="ignore"):
        return _mix(_mix(np.asarray(seed & _ALL_BITS, np.uint64)) + np.asarray(epoch, np.uint64) * _GOLDEN)


@lru_cache(maxsize=8)
def _block(samples: int, seed: int, block: int) -> np.ndarray:
    return samples_at(samples, seed, np.arange(block * _BLOCK, (block + 1) * _BLOCK))


def _network(index: np.ndarray, key: np.ndarray, bits: int) -> np.ndarray:
    """A bijection of `range(2 ** bits)`: the two halves of an index change each other in turn."""
    low_bits = np.uint64((bits + 1) // 2)
    low_mask, high_mask = np.uint64((1 << (bits + 1) // 2) - 1), np.uint64((1 << bits // 2) - 1)
    high, low = index >> low_bits, index & low_mask
    with np.errstate(over="ignore"):
        for turn in range(_ROUNDS):
            key = key + _GOLDEN
            if turn % 2:
                high = high ^ (_mix(low + _mix(key)) & high_mask)
            else:
                low = low ^ (_mix(high + _mix(key)) & low_mask)
    return high << low_bits | low


def _mix(x: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser: every bit of the input changes every bit of the output half of the time."""
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed
