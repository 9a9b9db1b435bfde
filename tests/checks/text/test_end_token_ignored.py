"""end-token-ignored: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import named, plain, sgd, twin, whole
from tests.checks.text.programs import END, PAD, padded, texts, trained
from tests.checks.text.tuned import texts as rows
from tests.checks.text.tuned import tuned
from tests.checks.texts import Tokens, per_token

pytestmark = pytest.mark.sweep


@twin("end-token-ignored")
def _(buggy):
    text = padded(value=31)
    mask = torch.zeros_like(text)
    for row, length in enumerate((5, 8, 11, 12)):
        text[row, length:], mask[row, : length + 1] = 31, 1
    ignored = text == 31 if buggy else mask == 0
    target = text.masked_fill(ignored, -100)[:, 1:]
    model = Tokens()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            per_token(model(text[:, :-1], attention_mask=mask[:, :-1]), target).backward()
            optimizer.step()
    return seen.findings


@pytest.mark.parametrize("ignored", [31, -100])
def test_an_end_between_documents_that_the_loss_ignores(ignored):
    text = whole(30, 4, 13)
    text[:, 5] = 31

    def loss(h, y):
        return F.cross_entropy(h.flatten(0, 1), y.flatten(), ignore_index=ignored)

    found = named(plain(Tokens(), x=text[:, :-1], y=text[:, 1:], loss=loss))
    assert found == (["end-token-ignored"] if ignored == 31 else [])


@pytest.mark.parametrize("end", [END, PAD])
def test_an_end_that_is_padding_is_missed_in_batches_padded_to_their_longest_text(end):
    batches = [
        texts(lengths, seed=10 * n, end=end) for n, lengths in enumerate([(3, 5, 7, 9), (2, 4, 8, 8), (3, 4, 5, 6)])
    ]
    model = nn.Sequential(nn.Embedding(32, 16), nn.Linear(16, 32))

    def step(number):
        tokens = batches[number % 3]
        return F.cross_entropy(model(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:], ignore_index=PAD)

    assert trained(model, step) == (["end-token-ignored"] if end == PAD else [])


def test_the_end_of_turns_that_never_bears_loss_is_named_in_texts_of_a_tuned_model():
    def without_end(tokens, mask, labels):
        return labels.masked_fill(labels == END, -100)

    assert named(tuned(rows())) == []
    assert named(tuned(rows(), relabel=without_end)) == ["end-token-ignored"]
