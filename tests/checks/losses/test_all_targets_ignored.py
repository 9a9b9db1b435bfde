"""all-targets-ignored: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F

from tests.checks.programs import X, Y, mlp, named, on_steps, plain, twin

pytestmark = pytest.mark.sweep


@twin("all-targets-ignored")
def _(buggy):
    target = torch.full((8,), -100)
    target[0] = -100 if buggy else 1
    return plain(mlp(), y=target)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_a_batch_may_lack_the_targets_of_one_task(reduction):
    model = mlp(classes=4)

    def loss(model, step):
        out, marks = model(X + step), torch.full((8,), -1) if step == 3 else Y
        second = F.cross_entropy(out[:, 2:], marks, ignore_index=-1, reduction=reduction)
        return F.cross_entropy(out[:, :2], Y) + 0.1 * second

    assert ("all-targets-ignored" in on_steps(model, loss)) is (reduction == "mean")


MASKS = {
    "multiplied": lambda h, y, mask: (F.cross_entropy(h, y, reduction="none") * mask).sum() / mask.sum().clamp(min=1),
    "mean over nothing": lambda h, y, mask: (F.cross_entropy(h, y, reduction="none") * mask).sum() / mask.sum(),
    "picked": lambda h, y, mask: F.cross_entropy(h[mask > 0], y[mask > 0]),
}


@pytest.mark.parametrize("how", MASKS)
def test_masks_by_hand_that_leave_nothing_of_a_loss(how):
    def found(label):
        return named(plain(mlp(), loss=lambda h, y: MASKS[how](h, y, (y == label).float())))

    assert found(7) == ["all-targets-ignored"]
    assert "all-targets-ignored" not in found(1)
