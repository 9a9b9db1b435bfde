"""Packing: every target once, no row too long, and the gradients of training each document apart."""

import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.data.first_fit import first_fit
from surefoot.data.formats import open_corpus
from surefoot.data.packing import IGNORED, PackedDocuments, document_pieces
from surefoot.errors import DataError
from surefoot.recipes.gpt import GPT, next_token_loss
from tests.data.corpora import random_documents, write_corpus


@given(lengths=st.lists(st.integers(1, 64)), open_rows=st.integers(1, 8))
def test_every_piece_is_in_one_row_and_no_row_is_too_long(lengths, open_rows):
    pieces = [(0, length, number) for number, length in enumerate(lengths)]
    rows = list(first_fit(iter(pieces), 64, open_rows=open_rows))
    assert sorted(piece for row in rows for piece in row) == sorted(pieces)
    assert all(0 < sum(length for _, length, _ in row) <= 64 for row in rows)


def test_first_fit_takes_the_first_row_with_room():
    lengths = [5, 6, 3, 4, 2]
    rows = list(first_fit(((0, length, number) for number, length in enumerate(lengths)), 8))
    assert [[length for _, length, _ in row] for row in rows] == [[5, 3], [6, 2], [4]]


@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=40).filter(lambda found: max(found) > 1),
    context=st.integers(1, 40),
)
def test_every_token_but_the_first_of_a_document_is_a_target_once(lengths, context, tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    ids = iter(range(10_000))
    documents = [np.array([next(ids) for _ in range(length)]) for length in lengths]
    write_corpus(folder, {"a": documents[::2], "b": documents[1::2]} if len(documents) > 1 else {"a": documents})
    packed = PackedDocuments(open_corpus(folder), context)
    tokens, targets, positions, numbers = packed.__getitems__(range(len(packed)))
    real = targets != IGNORED
    assert sorted(targets[real].tolist()) == sorted(token for each in documents for token in each[1:].tolist())
    assert torch.equal(tokens[real] + 1, targets[real])
    assert torch.equal(numbers == -1, ~real)
    begins = real.clone()
    begins[:, 1:] &= numbers[:, 1:] != numbers[:, :-1]
    assert torch.equal(positions == 0, begins | ~real)


def gradients(model: GPT, batches: list[tuple[torch.Tensor, ...]]) -> list[torch.Tensor]:
    model.zero_grad(set_to_none=True)
    losses, counts = zip(*(next_token_loss(model, batch) for batch in batches), strict=True)
    (sum(losses) / sum(counts)).backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_packing_equals_training_each_document_apart(tmp_path):
    context, vocabulary = 48, 97
    write_corpus(tmp_path, {"text": random_documents(40, 14, vocabulary=vocabulary)}, vocabulary)
    corpus = open_corpus(tmp_path)
    torch.manual_seed(0)
    model = GPT(vocabulary, layers=3, width=32, heads=4, context=context).double()
    packed = PackedDocuments(corpus, context)
    assert len(packed) < 40
    together = gradients(model, [packed.__getitems__(range(len(packed)))])
    apart = []
    for shard, count, first in document_pieces(corpus, context):
        piece = torch.from_numpy(corpus.tokens(shard, first, count + 1).astype(np.int64))[None]
        apart.append((piece[:, :-1], piece[:, 1:]))
    for mine, other in zip(together, gradients(model, apart), strict=True):
        assert (mine - other).norm() <= 1e-5 * other.norm()

    tokens, targets, positions, documents = packed.__getitems__(range(len(packed)))
    for wrong in ((tokens, targets, positions, documents.clamp(max=0)), (tokens, targets)):
        seen = gradients(model, [wrong])
        assert any((mine - other).norm() > 1e-3 * other.norm() for mine, other in zip(seen, together, strict=True))


def test_rows_are_packed_once_and_again_when_the_corpus_changes(tmp_path):
    write_corpus(tmp_path, {"text": random_documents(20, 30)})
    first = PackedDocuments(open_corpus(tmp_path), 64)
    packings = []
    assert len(PackedDocuments(open_corpus(tmp_path), 64, tell=packings.append)) == len(first)
    assert not packings
    write_corpus(tmp_path, {"text": random_documents(20, 30, seed=1)})
    second = PackedDocuments(open_corpus(tmp_path), 64, tell=packings.append)
    assert sum(packings) > 0
    assert second.identity() != first.identity()


def test_a_damaged_packing_is_refused(tmp_path):
    write_corpus(tmp_path, {"text": random_documents(20, 30)})
    packed = PackedDocuments(open_corpus(tmp_path), 64)
    with (tmp_path / "packed-64.pieces").open("r+b") as file:
        file.seek(4)
        file.write(b"\x7f")
    with pytest.raises(DataError, match=r"packed-64\.pieces is damaged: page 0"):
        packed.pieces(0)


def test_documents_of_one_token_cannot_be_packed(tmp_path):
    write_corpus(tmp_path, {"text": [np.array([1])] * 3})
    with pytest.raises(DataError, match="nothing to pack"):
        PackedDocuments(open_corpus(tmp_path), 64)
    assert not [name for name in os.listdir(tmp_path) if "packed" in name]


def test_look_ahead_changes_nothing(tmp_path):
    write_corpus(tmp_path, {"text": random_documents(20, 30)})
    packed = PackedDocuments(open_corpus(tmp_path), 64)
    packed.will_need(np.arange(len(packed)))
