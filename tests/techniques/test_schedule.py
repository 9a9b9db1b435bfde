"""Schedules: the factor of every step, from its number alone."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surefoot import Recipe
from surefoot.errors import RecipeError
from surefoot.recipe.by_token import ByToken
from surefoot.techniques import schedule
from surefoot.techniques.schedule import constant, step_decay, warmup_cosine, warmup_stable_decay


def factors(follow, steps: int) -> list[float]:
    return [follow(step, steps) for step in range(steps + 1)]


@given(warmup=st.integers(1, 50), steps=st.integers(51, 500), floor=st.floats(0, 1))
def test_warmup_rises_to_one_and_the_cosine_falls_to_the_floor(warmup, steps, floor):
    factor = warmup_cosine(warmup_steps=warmup, floor=floor)
    rising = [factor(step, steps) for step in range(warmup)]
    falling = [factor(step, steps) for step in range(warmup, steps + 1)]
    assert rising == sorted(rising)
    assert rising[-1] == 1.0
    assert falling == sorted(falling, reverse=True)
    assert falling[0] == pytest.approx(1.0)
    assert falling[-1] == pytest.approx(floor)


def test_golden_values():
    assert factors(warmup_cosine(warmup_steps=2, floor=0.0), 6) == pytest.approx(
        [0.5, 1.0, 1.0, (2 + 2**0.5) / 4, 0.5, (2 - 2**0.5) / 4, 0.0]
    )
    assert factors(warmup_stable_decay(warmup_steps=2, decay_steps=4, floor=0.2), 8) == pytest.approx(
        [0.5, 1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2]
    )
    assert factors(step_decay(every_steps=3, factor=0.5), 7) == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]
    assert factors(constant(warmup_steps=4), 5) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert factors(constant(), 3) == [1.0, 1.0, 1.0, 1.0]


@given(
    warmup=st.integers(0, 60),
    decay=st.integers(1, 60),
    stable=st.integers(0, 100),
    floor=st.floats(0, 1),
)
def test_no_schedule_jumps_and_all_end_where_they_should(warmup, decay, stable, floor):
    steps = warmup + stable + decay
    wsd = factors(warmup_stable_decay(warmup_steps=warmup, decay_steps=decay, floor=floor), steps)
    cosine = factors(warmup_cosine(warmup_steps=warmup, floor=floor), steps)
    slowest = min(length for length in (warmup or math.inf, decay))
    assert max(abs(b - a) for a, b in pairwise(wsd)) <= 1 / slowest + 1e-9
    for followed in (wsd, cosine):
        assert followed[-1] == pytest.approx(floor)
        assert all(factor <= 1 + 1e-12 for factor in followed)
        assert all(factor >= floor - 1e-12 for factor in followed[warmup:])
    assert wsd[warmup : steps - decay + 1] == [1.0] * (stable + 1)


@given(tokens_per_step=st.integers(1, 4096), warmup=st.integers(0, 40), decay=st.integers(1, 40))
def test_lengths_in_tokens_are_lengths_in_steps(tokens_per_step, warmup, decay):
    by_step = warmup_stable_decay(warmup_steps=warmup, decay_steps=decay)
    by_token = warmup_stable_decay(warmup_tokens=warmup * tokens_per_step, decay_tokens=decay * tokens_per_step)
    assert factors(by_token.by_step(tokens_per_step), 100) == pytest.approx(factors(by_step, 100))
    decays = step_decay(every_tokens=decay * tokens_per_step).by_step(tokens_per_step)
    assert factors(decays, 100) == pytest.approx(factors(step_decay(every_steps=decay), 100))


def test_a_warmup_of_tokens_that_ends_within_a_step_reaches_one_there():
    rising = factors(warmup_cosine(warmup_tokens=250).by_step(100), 1000)[:4]
    assert rising[:3] == pytest.approx([0.4, 0.8, 1.0])
    assert rising[3] <= 1.0


def test_steps_and_tokens_do_not_mix():
    with pytest.raises(RecipeError, match="in steps, all in tokens, or all as shares, not a mix"):
        warmup_stable_decay(warmup_steps=10, decay_tokens=1000)


def recipe(follow) -> Recipe:
    return Recipe(
        model=lambda: torch.nn.Linear(1, 1),
        data=lambda: None,
        loss=lambda model, batch: model(batch).sum(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5),
        schedule=follow,
        micro_batch_size=10,
        max_steps=20,
    )


@pytest.mark.parametrize(
    "follow",
    [
        constant(warmup_steps=3),
        warmup_cosine(warmup_tokens=40),
        warmup_stable_decay(warmup_steps=4, decay_steps=8),
        step_decay(every_tokens=50),
        lambda step, steps: 1 / (step + 1),
    ],
)
def test_the_rate_of_a_step_follows_from_its_number_alone(follow):
    def fresh():
        optimizer = torch.optim.SGD([{"params": [torch.ones(1)]}, {"params": [torch.ones(1)], "lr": 2.0}], lr=0.5)
        return optimizer, schedule.scheduler(recipe(follow), optimizer)

    optimizer, walked = fresh()
    for updates in range(20):
        other, resumed = fresh()
        schedule.resume(resumed, updates)
        assert [group["lr"] for group in other.param_groups] == [group["lr"] for group in optimizer.param_groups]
        assert resumed.last_epoch == walked.last_epoch == updates
        optimizer.step()
        walked.step()
        other.step()
        resumed.step()
        assert [group["lr"] for group in other.param_groups] == [group["lr"] for group in optimizer.param_groups]


def test_a_schedule_by_token_waits_for_the_recipe():
    assert isinstance(warmup_cosine(warmup_tokens=5), ByToken)
    assert not isinstance(warmup_cosine(warmup_steps=5), ByToken)
