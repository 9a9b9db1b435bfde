"""What ranks tell each other of a step: every sample in the place it would have on one rank."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surefoot.records.log import MOST_SAMPLES, digest_of
from surefoot.techniques.mesh import Layout
from surefoot.training.exchange import tell_all


def told_by(ranks, tp, turns, size, samples, *, asked=()):
    """What the last of some ranks is told; `gather` first hears all of them."""
    rows, said = [], []
    for heard in (False, True):
        for rank in range(ranks * tp):
            layout = Layout(dp_shard=ranks, tp=tp, rank=rank)
            world = SimpleNamespace(gather=lambda mine: rows.append([*map(int, mine)]) or rows[: ranks * tp])
            step = SimpleNamespace(layout=layout, micro_batches=turns, recipe=SimpleNamespace(micro_batch_size=size))
            places = [turn * ranks + layout.data_rank for turn in range(turns)]
            taken = [sample for place in places for sample in samples[place * size : (place + 1) * size]]
            if heard or ranks * tp > 1:
                more = {
                    "seconds": rank / 8,
                    "data_seconds": 0.5,
                    "own_seconds": 0.25,
                    "taken": taken,
                    "hashes": [],
                    "asked": rank in asked,
                }
                said.append(tell_all(world, step, **more))
    return said[-1]


@given(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.integers(1, 3), st.integers(1, 40), st.integers(0, 9))
def test_any_number_of_ranks_has_the_samples_of_one(ranks, tp, turns, size, seed):
    count = ranks * turns * size
    samples = torch.randint(0, 2**40, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
    told = told_by(ranks, tp, turns, size, samples)
    assert told.samples == (tuple(samples) if count <= MOST_SAMPLES else None)
    assert told.digest == digest_of(samples)


def test_who_was_asked_to_stop_and_how_long_the_slowest_took():
    told = told_by(4, 1, 1, 2, list(range(8)), asked=(1, 3))
    assert (told.asked_to_stop, told.seconds, told.data_seconds) == ([1, 3], 3 / 8, 0.5)
    assert told.own_seconds == [0.25] * 4


@pytest.mark.parametrize("other", [[1, 2, 4], [2, 1, 3], [1, 2], [1, 2, 3, 0], [-1, 2, 3]])
def test_a_digest_tells_samples_and_their_order(other):
    assert digest_of([1, 2, 3]) != digest_of(other)
    assert digest_of([1, 2, 3]) == digest_of([1, 3], [0, 2]) + digest_of([2], [1]) - 2**64 * (
        digest_of([1, 3], [0, 2]) + digest_of([2], [1]) >= 2**64
    )
