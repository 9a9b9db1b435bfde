"""wrapped-token-ids: the buggy and the fixed program, variants, and what looks like it and is fine."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import named, plain, sgd, twin, whole
from tests.checks.texts import Tokens, per_token

pytestmark = pytest.mark.sweep


@twin("wrapped-token-ids")
def _(buggy):
    kept = whole(1000, 64, 13).to(torch.uint8 if buggy else torch.uint16)
    text = kept.long()
    return plain(Tokens(vocabulary=1000), x=text[:, :-1], y=text[:, 1:], loss=per_token)


@pytest.mark.parametrize("narrow", [True, False])
def test_tokens_that_were_cut_off_on_their_way(narrow):
    words = np.random.default_rng(0).integers(0, 700, 640)
    text = torch.from_numpy((words.astype(np.uint8) if narrow else words.astype(np.uint16)).astype(np.int64))
    model = nn.Sequential(nn.Embedding(700, 8), nn.Flatten(), nn.Linear(32, 3))
    optimizer = sgd(model, lr=0.05)
    with surefoot.watch(model, optimizer) as seen:  # in this file: where no narrow array is left, its source is read
        for x, y in zip(text.view(-1, 8, 4), whole(3, 20, 8), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert named(seen.findings) == (["wrapped-token-ids"] if narrow else [])
