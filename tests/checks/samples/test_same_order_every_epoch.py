"""same-order-every-epoch: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler, Sampler, TensorDataset

import surefoot
from tests.checks.loaders import COUNT, INPUTS, KINDS, LABELS, TOLD, stepped, trained
from tests.checks.programs import mlp, named, numbers, sgd, twin
from tests.checks.samples.programs import Rows

pytestmark = pytest.mark.sweep


@twin("same-order-every-epoch")
def _(buggy):
    data = TensorDataset(INPUTS, LABELS)
    sampler = DistributedSampler(data, num_replicas=2, rank=0)
    return trained(DataLoader(data, 4, sampler=sampler), epoch=lambda n: None if buggy else sampler.set_epoch(n))


def test_one_seed_for_several_settings_is_no_lost_shuffle():
    loader = DataLoader(TensorDataset(numbers(48, 4), torch.arange(48) % 2), 8, shuffle=True)

    def tried(*trainings):
        with surefoot.watch() as seen:
            for passes in trainings:
                model = mlp()
                optimizer = sgd(model)
                for _ in range(passes):
                    torch.manual_seed(0)
                    for x, y in loader:
                        optimizer.zero_grad()
                        F.cross_entropy(model(x), y).backward()
                        optimizer.step()
        return named(seen.findings)

    assert tried(1, 1, 1) == []
    assert tried(3) == ["same-order-every-epoch"]


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


DATA = TensorDataset(numbers(48, 4), torch.arange(48) % 2)


def seeded(seed):
    return DataLoader(DATA, 8, shuffle=True, generator=torch.Generator().manual_seed(seed))


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


@pytest.mark.parametrize(("by_epoch", "expected"), [(False, ["same-order-every-epoch"]), (True, [])])
def test_a_loader_that_is_made_anew_for_every_pass(by_epoch, expected):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch() as seen:
        for epoch in range(3):
            for x, y in seeded(5 + epoch * by_epoch):
                step(model, optimizer, x, y)
    assert named(seen.findings) == expected


def test_two_loaders_side_by_side_may_have_one_order():
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch() as seen:
        for (x, y), (again, _) in zip(seeded(5), seeded(5), strict=True):
            step(model, optimizer, x + 0.1 * again, y)
    assert named(seen.findings) == []


@pytest.mark.parametrize("form", ["lost", "restored", "another training", "within the first pass"])
def test_the_order_after_a_resume(form, tmp_path):
    file = tmp_path / "state.pt"

    def run(passes, *, resumes):
        model, order = mlp(), torch.Generator().manual_seed(5)
        optimizer = sgd(model, momentum=0.9)
        if resumes and form != "another training":
            state = torch.load(file)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            if form == "restored":
                order.set_state(state["order"])
        for _ in range(passes):
            for number, batch in enumerate(DataLoader(DATA, 8, shuffle=True, generator=order)):
                step(model, optimizer, *batch)
                if form == "within the first pass" and number == 2 and not resumes:
                    break
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(states | ({"order": order.get_state()} if form == "restored" else {}), file)

    with surefoot.watch() as seen:
        run(1 if form == "within the first pass" else 2, resumes=False)
        run(2, resumes=True)
    assert ("same-order-every-epoch" in named(seen.findings)) is (form == "lost")
