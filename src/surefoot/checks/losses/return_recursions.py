"""Tests whether the weights of log-probabilities are returns: each the reward of its step plus what comes after it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from surefoot.checks.engine.host_copies import HOST

SHORTEST = 16
_EXACT = 1e-4
"""The largest error of a recursion, in standard deviations of the weights."""
_LEAST = 0.3
"""A discount is larger than this."""
_COUNTS = 0.01
"""Rewards explain at least this share of the weights."""
_MOST = 2048


def fault_of_returns(weights: list[float], arrays: Iterable[torch.Tensor]) -> str | None:
    """How returns of rewards in sight break their recursion; empty if they keep it, None if they are no returns."""
    given = np.asarray(weights)
    if len(given) > _MOST or not np.isfinite(given).all() or given.std() < 1e-9:
        return None
    fitting = [each for each in arrays if each.numel() == len(given) and each.dim() == 1]
    columns = [each.double().numpy() for each in HOST.all_of(fitting)]
    flags = [each for each in columns if set(np.unique(each)) == {0.0, 1.0}]
    verdicts = [_verdict(given, each, flags) for each in columns if np.isfinite(each).all()]
    told = [each for each in verdicts if each is not None]
    return None if not told else "" if "" in told else told[0]


def _verdict(weights: np.ndarray, rewards: np.ndarray, flags: list[np.ndarray]) -> str | None:
    if np.ptp(rewards) < 1e-9:
        return _of_even_rewards(weights, float(rewards[0]))
    for done in flags:
        ends = (done[:-1] == 1).nonzero()[0]
        if done is rewards or np.array_equal(done, rewards) or not 0 < len(ends) <= len(rewards) // 4:
            continue
        inside = done[:-1] == 0
        fit = _fit(weights[:-1][inside], rewards[:-1][inside], weights[1:][inside])
        if fit is not None:
            expected = fit[0] * rewards[ends] + fit[1] * weights[ends + 1] + fit[2]
            across = np.abs(expected - weights[ends]) < _EXACT * weights.std()
            return f"they count rewards of the next episode at {len(ends)} ends of episodes" if across.all() else ""
    if _fit(weights[:-1], rewards[:-1], weights[1:]) is not None:
        return ""
    if _fit(weights[1:], rewards[1:], weights[:-1]) is not None:
        return "they count the rewards before each action, not those after it"
    return None


def _fit(now: np.ndarray, rewards: np.ndarray, beside: np.ndarray) -> tuple[float, float, float] | None:
    """The factors of rewards and of the neighbouring weights, and the offset, if these explain the weights exactly.

    Rewards must raise the weights, and the neighbouring weights must count by a discount.
    """
    if len(now) < SHORTEST // 2:
        return None
    table = np.stack([rewards, beside, np.ones_like(now)], 1)
    factors, _, rank, _ = np.linalg.lstsq(table, now, rcond=1e-10)
    exact = bool(now.std()) and rank == 3 and np.abs(table @ factors - now).max() < _EXACT * now.std()
    counts = factors[0] * rewards.std() > _COUNTS * now.std() and _LEAST < factors[1] <= 1 + _EXACT
    return tuple(map(float, factors)) if exact and counts else None  # type: ignore[return-value]


def _of_even_rewards(weights: np.ndarray, reward: float) -> str | None:
    """The same where every step has the same reward: returns shrink towards the end, by a fixed ratio or step."""
    steps = np.diff(weights)
    if reward == 0 or not ((steps > 0).all() or (steps < 0).all()):
        return None
    ratios = steps[1:] / steps[:-1]
    if np.abs(ratios - ratios.mean()).max() > _EXACT:
        return None
    shrinks = bool((np.abs(steps[0]) >= np.abs(steps[-1]) - 1e-9) if steps[0] * reward > 0 else True)
    if steps[0] * reward < 0:
        return ""
    return "they count the rewards before each action, not those after it" if shrinks else None
