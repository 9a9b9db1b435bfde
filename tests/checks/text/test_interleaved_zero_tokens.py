"""interleaved-zero-tokens: the buggy and the fixed program, variants, and what looks like it and is fine."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.batches import CLASSES
from tests.checks.programs import named, plain, sgd, twin, whole
from tests.checks.texts import Tokens, per_token

pytestmark = pytest.mark.sweep


@twin("interleaved-zero-tokens")
def _(buggy):
    text = 1 + whole(30, 4, 13)
    if buggy:
        text[:, 1::2] = 0
    return plain(Tokens(), x=text[:, :-1], y=text[:, 1:], loss=per_token)


@pytest.mark.parametrize("wide", [True, False])
def test_zeros_between_tokens_are_seen_in_front_of_padding(wide):
    def row(size, seed):
        tokens = 1 + whole(20, size, seed=seed).numpy()
        read = np.stack([tokens, 0 * tokens], 1).reshape(-1) if wide else np.concatenate([tokens, tokens])
        return np.pad(read, (0, 48 - len(read)))

    texts = [torch.from_numpy(np.stack([row(7 + n + each, each) for each in range(8)])) for n in range(5)]
    model = nn.Sequential(nn.Embedding(22, 8), nn.Flatten(), nn.Linear(384, 3))
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for text in texts:
            optimizer.zero_grad()
            F.cross_entropy(model(text), CLASSES[:8]).backward()
            optimizer.step()
    assert ("interleaved-zero-tokens" in named(seen.findings)) is wide


@pytest.mark.parametrize("wide", [2, 4])
def test_wide_tokens_that_are_read_as_narrow_ones_from_anywhere(wide):
    stream = torch.zeros(400, dtype=torch.long)
    stream[::wide] = 1 + whole(30, 400 // wide)
    rows = torch.stack([stream[start : start + 17] for start in (0, 33, 70, 131)])
    assert named(plain(Tokens(), x=rows[:, :-1], y=rows[:, 1:], loss=per_token)) == ["interleaved-zero-tokens"]
