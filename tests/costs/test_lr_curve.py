"""What is read from a range test's curve does not depend on its scale, and noise alone suggests nothing."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.costs.lr_curve import MODEL_AT_REST, edge, has_diverged, smooth, steepest

RATES = [1e-7 * 1e8 ** (index / 99) for index in range(100)]


def valley(*, fall: float = -3.0, rise: float = -1.0, noise: float = 0.0) -> list[float]:
    """A loss of 5 that falls to 2 around 10**fall and rises without end from 10**rise on."""
    generator, losses = random.Random(1), []
    for rate in RATES:
        power = math.log10(rate)
        losses.append(5 - 3 / (1 + math.exp(-6 * (power - fall))) + math.exp(6 * (power - rise)))
    return [loss + generator.gauss(0, noise) for loss in losses]


def read(losses: list[float]) -> tuple[float, float]:
    course = smooth(RATES[: len(losses)], losses)
    return RATES[steepest(losses, course)], RATES[edge(course)]


def until_divergence(losses: list[float]) -> list[float]:
    return next((losses[:end] for end in range(1, 101) if has_diverged(losses[:end])), losses)


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize(("fall", "rise"), [(-3.0, -1.0), (-4.5, -2.0), (-2.0, 0.0)])
def test_the_fall_and_the_edge_are_found_where_they_are(fall: float, rise: float, noise: float):
    steep, rim = read(until_divergence(valley(fall=fall, rise=rise, noise=noise)))
    assert math.log10(steep) == pytest.approx(fall, abs=0.35)
    assert math.log10(rim) == pytest.approx(rise, abs=0.35)


@settings(deadline=None, max_examples=25)
@given(scale=st.floats(1e-3, 1e3))
def test_the_scale_of_the_loss_does_not_matter(scale: float):
    losses = until_divergence(valley(noise=0.05))
    assert read([scale * loss for loss in losses]) == read(losses)
    assert len(until_divergence([scale * loss for loss in valley(noise=0.05)])) == len(losses)


def test_losses_below_zero_diverge_and_are_read_too():
    losses = until_divergence([loss - 20 for loss in valley()])
    assert len(losses) < 100
    assert math.log10(read(losses)[0]) == pytest.approx(-3, abs=0.35)


def test_noise_alone_suggests_almost_nothing():
    suggested = 0
    for seed in range(100):
        generator = random.Random(seed)
        losses = [5 + generator.gauss(0, 0.2) for _ in RATES]
        assert not has_diverged(losses)
        suggested += steepest(losses, smooth(RATES, losses)) is not None
    assert suggested <= 3


def test_a_loss_that_only_rises_suggests_nothing():
    losses = [1 + index / 100 for index in range(100)]
    assert steepest(losses, smooth(RATES, losses)) is None


def test_one_loss_alone_is_no_divergence():
    losses = [5.0] * 50
    losses[30] = 1e9
    assert not any(has_diverged(losses[:end]) for end in range(1, 51))
    assert smooth(RATES[:50], losses)[30] < 10
    assert has_diverged([*losses[:29], 1e9, 1e9])
    assert not has_diverged([1e9] * MODEL_AT_REST)
