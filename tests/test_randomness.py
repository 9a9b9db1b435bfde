"""Randomness follows from the place, and leaves no trace."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surefoot.errors import CheckpointError
from surefoot.randomness import Stream, derive, generators, kept, seed_all, set_generators


def draw() -> tuple[float, float, float]:
    return random.random(), np.random.rand(), torch.rand(()).item()


places = st.lists(st.one_of(st.integers(0, 10**12), st.text("abc-", max_size=5)), max_size=4)


@given(st.integers(0, 2**40), places, places)
def test_another_place_has_another_seed(seed, one, other):
    assert derive(seed, *one) == derive(seed, *one)
    if "/".join(map(str, one)) != "/".join(map(str, other)):
        assert derive(seed, *one) != derive(seed, *other)
    assert 0 <= derive(seed, *one) < 2**63


def test_a_seed_does_not_change_from_release_to_release():
    assert derive(0, "step", 12, "rank", 0, "micro-batch", 3) == 516_462_908_320_286_181


def test_seeding_covers_python_numpy_and_torch():
    with kept():
        seed_all(5)
        first = draw()
        draw()
        seed_all(5)
        assert draw() == first


def test_what_is_drawn_inside_leaves_no_trace():
    with kept():
        seed_all(1)
        expected = draw()
        seed_all(1)
        with kept():
            seed_all(99)
            draw()
        assert draw() == expected


def test_a_stream_goes_on_from_where_it_ended():
    whole, cut = Stream(3), Stream(3)
    with whole():
        expected = [draw(), draw()]
    with kept():
        seed_all(1)
        outside = [draw(), draw()]
        seed_all(1)
        with cut():
            first = draw()
        between = draw()
        with cut():
            second = draw()
        assert [first, second] == expected
        assert [between, draw()] == outside


@pytest.mark.parametrize("change", [{"numpy": None}, {"python": (3, (), None)}, {"torch": 7}])
def test_a_state_that_no_generator_had_is_refused(change):
    with kept(), pytest.raises(CheckpointError, match="cannot restore the saved state of the random generators"):
        set_generators({**generators(), **change})


def test_a_device_with_one_generator_is_saved_and_restored(monkeypatch):
    """As MPS, which nobody here has: `torch.mps` has `get_rng_state` and `set_rng_state`, and none for all devices."""
    states = [torch.tensor([1, 2], dtype=torch.uint8)]
    module = SimpleNamespace(get_rng_state=lambda: states[-1], set_rng_state=states.append)
    assert not hasattr(torch.mps, "get_rng_state_all")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch, "get_device_module", lambda: module)
    saved = generators()
    states.append(torch.tensor([9, 9], dtype=torch.uint8))
    set_generators(saved)
    assert states[-1].tolist() == [1, 2]
