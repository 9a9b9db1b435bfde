"""mean-of-unequal-means: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from tests.checks.gradients.programs import PARTS, accumulated
from tests.checks.programs import X, Y, looped, mlp, named, numbers, sgd, twin, whole

pytestmark = pytest.mark.sweep


@twin("mean-of-unequal-means")
def _(buggy):
    ragged = [torch.where(torch.arange(8) < n, Y, -100) for n in ((8, 2, 8, 1) if buggy else (6, 6, 6, 6))]
    return accumulated(4, targets=ragged)


@pytest.mark.parametrize("cut_by_hand", [True, False])
def test_parts_of_unequal_size_are_more_than_a_last_batch(cut_by_hand):
    loader = DataLoader(TensorDataset(numbers(60, 4), whole(2, 60)), 8, shuffle=True)
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(2):
            for number, (x, y) in enumerate(loader):
                part = slice(2) if cut_by_hand and number % 2 else slice(None)
                (F.cross_entropy(model(x[part]), y[part]) / 2).backward()
                if number % 2:
                    optimizer.step()
                    optimizer.zero_grad()
    assert named(seen.findings) == (["mean-of-unequal-means"] if cut_by_hand else [])


@pytest.mark.parametrize("right", [True, False])
def test_a_mean_over_a_mask_counts_what_the_mask_holds(right):
    masks = [torch.tensor([1.0, 1, 1, 1, 1, 1, 0, 0]), torch.tensor([1.0, 1, 1, 0, 0, 0, 0, 0])]
    total = sum(mask.sum() for mask in masks)

    def body(model, optimizer):
        optimizer.zero_grad()
        for mask in masks:
            summed = (F.cross_entropy(model(X), Y, reduction="none") * mask).sum()
            (summed / total if right else summed / mask.sum() / len(masks)).backward()
        optimizer.step()

    assert looped(body) == ([] if right else ["mean-of-unequal-means"])


@pytest.mark.parametrize("by_own", [True, False])
def test_a_masked_sum_beside_other_terms_is_weighed(by_own):
    masks = [torch.arange(8).reshape(4, 2) < 7, torch.arange(8).reshape(4, 2) < 3]

    def step(model, optimizer):
        optimizer.zero_grad()
        for x, mask in zip(PARTS[0], masks, strict=True):
            out = model(x)
            masked = ((out - 1).square() * mask).sum() / (mask.sum() if by_own else 5)
            overlap = 1 - (out.sigmoid() * mask).sum() / (out.sigmoid().sum() + 1)
            ((masked + overlap) / 2).backward()
        optimizer.step()

    assert ("mean-of-unequal-means" in looped(step)) is by_own


@pytest.mark.parametrize(("last", "expected"), [(1, ["mean-of-unequal-means"]), (4, [])])
def test_a_last_batch_that_is_far_smaller_than_the_one_it_is_averaged_with(last, expected):
    model, x = mlp(), numbers(20, 4)
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            for part in (x[:16], x[16 : 16 + last]):
                (F.cross_entropy(model(part), (part[:, 0] > 0).long()) / 2).backward()
            optimizer.step()
    assert named(seen.findings) == expected
