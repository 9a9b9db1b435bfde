"""Micro-batches: the same samples with the same random numbers, however and from wherever they are loaded."""

import random
from itertools import chain, islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from surefoot.data.batches import micro_batches
from surefoot.errors import RecipeError


class Noisy(Dataset):
    """Samples that draw from all three generators."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, number: int):
        return number, random.random(), np.random.rand(), torch.rand(())


class NoisyStream(IterableDataset):
    """A stream that is cut among workers by hand, as torch's documentation asks for."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        first, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        for number in range(first, self.samples, stride):
            yield number, random.random(), np.random.rand()


class Gathered(Dataset):
    """A data set that hands out whole micro-batches and takes advice."""

    draws_randomness = False

    def __init__(self, samples: int) -> None:
        self.samples, self.advised = samples, []

    def __len__(self) -> int:
        return self.samples

    def __getitems__(self, numbers):
        return torch.as_tensor(np.asarray(numbers))

    def will_need(self, numbers) -> None:
        self.advised += list(numbers)


def rows(batches, count: int) -> list[tuple]:
    """Samples one by one, as plain numbers."""
    found = [tuple(np.asarray(each) for each in batch) for batch in islice(batches, count)]
    return [tuple(values) for batch in found for values in zip(*(each.tolist() for each in batch), strict=True)]


@settings(max_examples=25, deadline=None)
@given(data=st.data(), samples=st.integers(1, 40), seed=st.integers(0, 5))
def test_a_global_batch_does_not_depend_on_how_it_is_cut(data, samples, seed):
    ranks = data.draw(st.sampled_from([1, 2, 4, 8]))
    size = data.draw(st.integers(1, 4))
    step_samples = ranks * size * data.draw(st.integers(1, 3))
    first_step = data.draw(st.integers(0, 5))
    whole = rows(micro_batches(Noisy(samples), size=step_samples, seed=seed, first=first_step), 2)
    micro = step_samples // ranks // size
    cut = [
        micro_batches(Noisy(samples), size=size, seed=seed, first=first_step * micro, rank=rank, ranks=ranks)
        for rank in range(ranks)
    ]
    again = [row for _ in range(2 * micro) for each in cut for row in rows(each, 1)]
    assert again == whole


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_change_nothing(workers: int):
    alone = rows(micro_batches(Noisy(10), size=4, seed=1, first=2), 6)
    assert rows(micro_batches(Noisy(10), size=4, seed=1, first=2, workers=workers), 6) == alone


def test_a_sample_draws_anew_in_every_epoch():
    found = rows(micro_batches(Noisy(8), size=8, seed=0), 2)
    assert len({row[1:] for row in found}) == 16


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_resumes_to_the_same_samples_and_draws(workers: int):
    whole = rows(micro_batches(NoisyStream(10), size=4, seed=1, workers=workers), 9)
    late = rows(micro_batches(NoisyStream(10), size=4, seed=1, first=5, workers=workers), 4)
    assert late == whole[-len(late) :]
    assert sorted(row[0] for row in whole[:10]) == list(range(10))


def test_two_ranks_share_a_stream():
    whole = rows(micro_batches(NoisyStream(12), size=2, seed=1), 6)
    ranks = [micro_batches(NoisyStream(12), size=2, seed=1, rank=rank, ranks=2) for rank in range(2)]
    assert [row for _ in range(3) for each in ranks for row in rows(each, 1)] == whole


def test_nothing_is_drawn_from_the_global_generators():
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    for data in (Noisy(9), NoisyStream(9), TensorDataset(torch.arange(9))):
        list(islice(micro_batches(data, size=4, seed=1), 5))
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before


@pytest.mark.parametrize("ahead", [False, True])
def test_whole_micro_batches_with_advice(ahead: bool):
    data = Gathered(100)
    batches = micro_batches(data, size=4, seed=1, ahead=ahead)
    taken = [each.tolist() for each in islice(batches, 20)]
    assert batches.taken == list(chain(*taken))
    plain = micro_batches(TensorDataset(torch.arange(100)), size=4, seed=1)
    assert taken == [each[0].tolist() for each in islice(plain, 20)]
    batches.close()
    if ahead:
        assert data.advised[: 4 * 20] == list(chain(*taken))
        assert len(data.advised) > 4 * 20
    else:
        assert not data.advised


def test_whole_micro_batches_may_be_lists_of_samples():
    class Listed(Gathered):
        def __getitems__(self, numbers):
            return [(int(number), 2 * int(number)) for number in numbers]

    number, double = next(micro_batches(Listed(10), size=4, seed=1))
    assert double.tolist() == [2 * each for each in number.tolist()]


def test_an_error_in_the_thread_reaches_the_loop():
    class Broken(Gathered):
        def __getitems__(self, numbers):
            raise OSError("the disk is gone")

    batches = micro_batches(Broken(10), size=4, seed=1, ahead=True)
    for _ in range(2):
        with pytest.raises(OSError, match="the disk is gone"):
            next(batches)


def test_an_own_collate_joins_samples_of_different_lengths():
    class Ragged(Noisy):
        def __getitem__(self, number: int):
            return torch.full((number + 1,), number)

    padded = torch.nn.utils.rnn.pad_sequence
    (batch,) = islice(micro_batches(Ragged(4), size=4, seed=0, collate=lambda each: padded(each)), 1)
    assert batch.shape == (4, 4)


def test_an_empty_data_set_is_refused():
    with pytest.raises(RecipeError, match="empty"):
        micro_batches(TensorDataset(torch.ones(0)), size=1, seed=0)
    with pytest.raises(RecipeError, match="empty"):
        next(micro_batches(NoisyStream(0), size=1, seed=0))
