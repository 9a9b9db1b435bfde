"""In which order samples come, who hands them out and what is drawn beside them, in forms that twins do not have."""

import random
from collections import deque

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset, get_worker_info

import surefoot
from tests.checks.test_data_variants import KINDS, TOLD, stepped
from tests.checks.test_variants import named
from tests.checks.twins import plain, sgd, whole
from tests.checks.twins.data import COUNT, INPUTS, LABELS, trained

pytestmark = pytest.mark.sweep

# ------------------------------------------------------------------------------------------- orders


class Mixed(Sampler):
    """An order that is drawn for every pass, or once."""

    def __init__(self, once):
        self.once, self.rows = once, torch.randperm(COUNT).tolist()

    def __len__(self):
        return COUNT

    def __iter__(self):
        return iter(self.rows if self.once else torch.randperm(COUNT).tolist())


@pytest.mark.parametrize("once", [True, False])
def test_a_sampler_that_draws_its_order_once(once):
    data = TensorDataset(INPUTS, LABELS)
    expected = ["same-order-every-epoch"] if once else []
    assert named(trained(DataLoader(data, 8, sampler=Mixed(once)))) == expected


@pytest.mark.parametrize(("rows", "anew", "expected"), [(64, False, True), (64, True, False), (48, False, False)])
def test_rows_of_an_array_that_are_shuffled_once_for_all_passes(rows, anew, expected):
    inputs, kinds, orders = TOLD[:64].clone(), KINDS[:64].clone(), {}

    def batch(step):
        epoch, place = divmod(16 * step, rows)
        order = orders.setdefault(epoch if anew else 0, torch.randperm(64)[:rows])
        picked = order[place : place + 16]
        return inputs[picked], kinds[picked]

    table = inputs, kinds  # in sight of the loop
    assert ("same-order-every-epoch" in stepped(Rows(batch, table))) is expected


class Rows:
    """Batches from arrays that the loop can see."""

    def __init__(self, batch, table):
        self.batch, self.table = batch, table

    def __call__(self, step):
        return self.batch(step)


@pytest.mark.parametrize("places", [range(COUNT), list(range(COUNT))])
def test_samples_by_their_numbers_are_read_in_order(places):
    data = TensorDataset(INPUTS, LABELS.sort().values)
    assert "sorted-training-data" in named(trained(DataLoader(data, 8, sampler=places)))


# ------------------------------------------------------------------------------------------- streams


class Told(IterableDataset):
    """Samples that every worker tells from its own place on, or its share of them, with noise that is drawn anew."""

    def __init__(self, step, noise):
        self.step, self.noise = step, noise

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, self.step or worker.num_workers)
        for place in range(first, len(TOLD), step):
            yield TOLD[place] + self.noise * torch.randn(6), torch.tensor(place)


@pytest.mark.parametrize(("step", "noise"), [(1, 0.0), (1, 0.1), (None, 0.1)])
def test_workers_that_differ_only_in_where_they_begin(step, noise):
    model, loader = nn.Linear(6, 192), DataLoader(Told(step, noise), 16, num_workers=2)
    assert ("unsharded-stream" in named(trained(loader, passes=1, model=model))) is (step == 1)


# ------------------------------------------------------------------------------------------- random numbers


class Noisy(Dataset):
    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return INPUTS[index] + 0.1 * torch.randn(4), LABELS[index]


@pytest.mark.parametrize("seeded", [True, False])
def test_a_seed_that_is_set_before_every_epoch_repeats_orders_and_augmentations(seeded):
    def epoch(number):
        torch.manual_seed(0 if seeded else number)

    expected = ["same-order-every-epoch", "same-randomness-every-epoch"] if seeded else []
    assert sorted(named(trained(DataLoader(Noisy(), 8, shuffle=True), epoch=epoch))) == expected


def seeded_python(step):
    random.seed(step)
    return random.random()


def seeded_numpy(step):
    np.random.seed(step)
    return np.random.random()


def own_of_torch(step):
    return torch.randn(16, 6, generator=torch.Generator().manual_seed(step))


def own_of_numpy(step):
    return torch.from_numpy(np.random.default_rng(step).normal(size=(16, 6)).astype(np.float32))


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("draw", [seeded_python, seeded_numpy, own_of_torch, own_of_numpy])
def test_whatever_generator_is_seeded_anew_in_every_step(draw, again):
    def batch(step):
        rows = torch.randperm(128)[:16]
        return TOLD[rows] + 0.1 * draw(7 if again else step), KINDS[rows]

    assert stepped(batch) == (["reseeded-steps"] if again else [])


def test_what_is_drawn_alike_once_per_pass_is_no_noise_of_steps():
    def batch(step):
        if step % 4 == 0:
            own_of_torch(3)
        rows = torch.arange(16 * (step % 4), 16 * (step % 4) + 16)
        return TOLD[rows], KINDS[rows]

    assert stepped(batch) == []


# ------------------------------------------------------------------------------------------- one batch for ever


@pytest.mark.parametrize("first", [True, False])
def test_the_first_of_a_list_of_samples_for_ever(first):
    kept = deque(zip(TOLD[:128].clone(), KINDS[:128].tolist(), strict=True))

    def batch(step):
        chosen = list(kept)[:16] if first else random.sample(kept, 16)
        x, y = zip(*chosen, strict=True)
        return torch.stack(x), torch.tensor(y)

    assert stepped(Rows(batch, kept)) == (["repeated-batch"] if first else [])


@pytest.mark.parametrize("same", [True, False])
def test_the_same_windows_of_a_text_for_ever(same):
    text = np.random.default_rng(0).integers(0, 20, 4096).astype(np.uint8)
    model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))
    optimizer, draws = sgd(model), random.Random(0)
    fixed = [draws.randrange(4000) for _ in range(8)]
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(10):
            places = fixed if same else [draws.randrange(4000) for _ in range(8)]
            window = torch.from_numpy(np.stack([text[place : place + 17] for place in places]).astype(np.int64))
            optimizer.zero_grad()
            F.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten()).backward()
            optimizer.step()
    assert ("repeated-batch" in named(seen.findings)) is same


# ------------------------------------------------------------------------------------------- pictures


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (lambda x: x * 2 - 1, []),
        (lambda x: (x * 2 - 1) * 2 - 1, ["unscaled-inputs"]),
        (lambda x: (x - 0.5) / 0.3, []),
        (lambda x: ((x - 0.5) / 0.25 - 0.5) / 0.25, ["unscaled-inputs"]),
        (lambda x: x / 255 * 2 - 1, ["unscaled-inputs"]),
    ],
    ids=["once", "twice", "standardised", "standardised twice", "divided twice"],
)
def test_pictures_that_are_normalised_twice(scale, expected):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    pictures = scale(whole(256, 8, 3, 8, 8).float() / 255)
    assert named(plain(model, x=pictures, y=whole(2, 8), optimizer=sgd(model, lr=1e-5))) == expected
