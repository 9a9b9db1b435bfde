"""Sizes: the largest micro-batch of a pass is found by reading, within a budget of samples."""

import dataclasses
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset, IterableDataset

import surefoot
from surefoot.data import sizes as sizes_module
from surefoot.data.batches import batches_of
from surefoot.data.sizes import ALIKE, Sizes, sizes_of
from surefoot.meters.books import Books
from surefoot.step import Step
from surefoot.world.world import World


class Sentences(Dataset):
    """Sentences of 1 to 40 words; the length follows from the number."""

    draws_randomness = False

    def __init__(self, count: int = 32, longest: int = 40):
        self.count, self.longest, self.read = count, longest, 0

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.read += 1
        return torch.ones(1 + index * 7 % self.longest, dtype=torch.long)


def padded(samples):
    return nn.utils.rnn.pad_sequence(samples, batch_first=True)


def tagger(dataset=Sentences, **settings) -> surefoot.Recipe:
    return surefoot.Recipe(
        model=lambda: nn.Sequential(nn.Embedding(10, 16), nn.Linear(16, 10)),
        data=dataset,
        loss=lambda model, batch: F.cross_entropy(model(batch).flatten(0, 1), batch.flatten()),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        **{"micro_batch_size": 2, "collate": padded, **settings},
    )


def real_peaks(recipe: surefoot.Recipe, steps: int) -> list[int]:
    world, batches = World(), batches_of(recipe)
    with Books() as books:
        step = Step(recipe, world)
        books.close()
        books.phases.find(step.model)
        for _ in range(steps):
            step(books.seen(world.take(batches) for _ in range(recipe.micro_batches())))
    return [usage.peak.peak_bytes for usage in books.steps]


@pytest.mark.parametrize("settings", [{}, {"global_batch_tokens": 4}, {"micro_batch_size": 1, "collate": None}])
def test_a_steady_step_has_the_largest_micro_batch_of_a_pass(settings):
    recipe = tagger(**settings)
    steps = 32 // recipe.micro_batch_size // recipe.micro_batches()
    peaks = real_peaks(recipe, steps)
    plan = surefoot.plan(recipe)
    assert plan.steady.peak.peak_bytes == max(peaks[1:]) > peaks[1]
    assert f"from step {1 + peaks.index(max(peaks))}" in plan.assumptions[0]
    assert plan.assumptions[0].startswith("micro-batches differ in size: ")


def test_of_many_ranks_the_largest_of_any_is_taken():
    alone, many = (surefoot.plan(tagger(), on=on).steady for on in ("1xcpu", "2xcpu"))
    assert many.tally.total("memory/activations") == alone.tally.total("memory/activations")


def test_micro_batches_of_one_size_are_not_mentioned():
    plan = surefoot.plan(tagger(lambda: Sentences(longest=1)))
    assert plan.assumptions == ()


def test_the_search_ends_when_all_are_alike_or_its_samples_are_used_up():
    alike, long = Sentences(10_000, longest=1), Sentences(10_000)
    assert len(sizes_of(tagger(lambda: alike)).looked) == ALIKE // 2
    assert alike.read == ALIKE
    sizes = sizes_of(tagger(lambda: long), samples=10)
    assert len(sizes.looked) == 5
    assert "in the first 5 of 5,000 of a pass" in str(sizes)


def test_what_was_not_read_is_said_first():
    plan = surefoot.plan(tagger(lambda: Sentences(10_000)))
    assert "in the first 512 of 5,000 of a pass" in plan.steps_differ[0]
    assert "larger ones may follow" in plan.steps_differ[0]


class Lines(IterableDataset):
    """A stream of sentences without an end."""

    def __iter__(self):
        numbers = random.Random(0)
        while True:
            yield torch.ones(numbers.randint(1, 40), dtype=torch.long)


def test_a_stream_is_read_ahead():
    recipe = tagger(Lines, max_steps=60)
    plan = surefoot.plan(recipe)
    assert plan.steady.peak.peak_bytes == max(real_peaks(recipe, 60)[1:])
    assert plan.steps_differ == ()  # the whole run was read
    assert "of a stream" in surefoot.plan(tagger(Lines)).steps_differ[0]


@dataclasses.dataclass
class Page:
    words: list[torch.Tensor]


class Sheet:
    def __init__(self, words):
        self.words = words


@pytest.mark.parametrize(
    "container", [Page, Sheet, lambda words: {"a": {"b": words}}], ids=["data class", "object", "dict"]
)
def test_batches_in_any_container_are_measured(container):
    recipe = tagger(collate=lambda samples: container(samples))
    sizes = sizes_of(recipe)
    assert sizes.looked[:2] == tuple(
        sum(each.nbytes for each in sizes_module.tensors_inside(batch))
        for batch in (next(batches) for batches in [batches_of(recipe)] for _ in range(2))
    )
    assert sizes.differ


def test_of_batches_with_the_same_bytes_the_longest_is_planned_too():
    def batch(number, size):
        length = (4, 64, 8, 16)[number % 4]
        return torch.ones(256 // length, length, 1)

    recipe = surefoot.Recipe(
        model=lambda: nn.Linear(1, 16),
        data=lambda: batch,
        loss=lambda model, x: torch.bmm(model(x), model(x).transpose(1, 2)).square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-9),
        micro_batch_size=4,
        max_steps=40,
    )
    plan = surefoot.plan(recipe)
    assert plan.steady.peak.peak_bytes == max(real_peaks(recipe, 8)[1:])


def test_a_run_that_is_shorter_than_a_pass_is_looked_at_to_its_end():
    assert len(sizes_of(tagger(max_steps=3)).looked) == 3
    assert len(sizes_of(tagger(max_steps=3, global_batch_tokens=4)).looked) == 6


def test_a_data_set_of_one_shape_is_not_read():
    data = Sentences(longest=1)
    assert sizes_of(tagger(lambda: data, collate=None)) is None
    assert data.read == 0


def test_the_place_of_the_largest_on_many_ranks():
    sizes = Sizes((1, 2, 3, 4, 9, 5, 6, 7), 8, ranks=2, per_step=2)
    assert sizes.largest == (1, 0)
    assert dataclasses.replace(sizes, per_step=1).largest == (2, 0)
    assert dataclasses.replace(sizes, ranks=4, per_step=1).largest == (1, 0)


def test_looking_changes_no_random_number():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    sizes_of(tagger())
    assert torch.equal(torch.get_rng_state(), before)
