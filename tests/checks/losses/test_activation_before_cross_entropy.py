"""activation-before-cross-entropy: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F

from tests.checks.losses.programs import ending
from tests.checks.programs import Y, mlp, named, plain, twin

pytestmark = pytest.mark.sweep


@twin("activation-before-cross-entropy")
def _(buggy):
    return plain(ending(lambda h: h.relu() if buggy else 30 * torch.tanh(h / 30)))


@pytest.mark.parametrize("squeeze", [F.gelu, torch.tanh, torch.clone])
def test_logits_of_yes_or_no_that_are_squeezed(squeeze):
    found = plain(mlp(classes=1), y=Y.float(),
                  loss=lambda h, y: F.binary_cross_entropy_with_logits(squeeze(h).squeeze(1), y))  # fmt: skip
    assert named(found) == ([] if squeeze is torch.clone else ["activation-before-cross-entropy"])
