"""Losses over structures: chains, alignments, trees and matchings, summed by dynamic programmes and linear algebra."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from families import family
from torch import nn

from surefoot import Recipe, recipe_of

structured = family("structured")


class Tagger(nn.Module):
    def __init__(self, out: int, width: int = 96) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(1000, width), nn.Linear(2 * width, out)
        self.body = nn.LSTM(width, width, batch_first=True, bidirectional=True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embed(tokens))[0])


def sentences(samples: int = 16, length: int = 32) -> torch.Tensor:
    return torch.randint(1, 1000, (samples, length))


class Crf(Tagger):
    def __init__(self, tags: int = 9) -> None:
        super().__init__(tags)
        self.start, self.end = nn.Parameter(torch.randn(tags)), nn.Parameter(torch.randn(tags))
        self.moves = nn.Parameter(torch.randn(tags, tags))

    def partition(self, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        alpha = self.start + scores[:, 0]
        for place in range(1, scores.shape[1]):
            after = torch.logsumexp(alpha[:, :, None] + self.moves + scores[:, place, None], 1)
            alpha = torch.where(mask[:, place, None], after, alpha)
        return torch.logsumexp(alpha + self.end, 1)

    def path(self, scores: torch.Tensor, tags: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        chosen = scores.gather(2, tags[..., None]).squeeze(2)
        moves = self.moves[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]
        last = tags.gather(1, mask.long().sum(1, keepdim=True) - 1).squeeze(1)
        return self.start[tags[:, 0]] + (chosen * mask).sum(1) + moves.sum(1) + self.end[last]


@structured
def crf() -> Recipe:
    def loss(model: Any, batch: Any) -> torch.Tensor:
        tokens, tags, lengths = batch
        mask = torch.arange(tokens.shape[1]) < lengths[:, None]
        if not mask[:, 0].all():
            raise ValueError("mask of the first timestep must all be on")
        scores = model(tokens)
        return (model.partition(scores, mask) - model.path(scores, tags, mask)).mean()

    batch = sentences(), torch.randint(0, 9, (16, 32)), torch.randint(5, 33, (16,))
    return recipe_of(Crf, batch, loss=loss)


@structured
def crf_decoded() -> Recipe:
    """A perceptron of structures: the best path is found in Python, and its score pushed down."""

    def best(model: Any, scores: torch.Tensor) -> torch.Tensor:
        score, back = model.start + scores[:, 0], []
        for place in range(1, scores.shape[1]):
            score, pointer = (score[:, :, None] + model.moves + scores[:, place, None]).max(1)
            back.append(pointer)
        paths = []
        for sample in range(len(scores)):
            path = [int(score[sample].argmax().item())]
            for pointer in reversed(back):
                path.append(int(pointer[sample, path[-1]].item()))
            paths.append(path[::-1])
        return torch.tensor(paths)

    def loss(model: Any, batch: Any) -> torch.Tensor:
        tokens, tags = batch
        scores, mask = model(tokens), torch.ones_like(tokens, dtype=torch.bool)
        with torch.no_grad():
            found = best(model, scores)
        return F.relu(1 + model.path(scores, found, mask) - model.path(scores, tags, mask)).mean()

    return recipe_of(Crf, (sentences(8, 24), torch.randint(0, 9, (8, 24))), loss=loss)


@structured
def transducer() -> Recipe:
    """The loss of RNN-T, over a lattice of frames and words."""

    class Transducer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hear, self.embed = nn.GRU(40, 64, batch_first=True), nn.Embedding(60, 64)
            self.say, self.join = nn.GRU(64, 64, batch_first=True), nn.Linear(64, 60)

        def forward(self, sound: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
            heard, said = self.hear(sound)[0], self.say(self.embed(F.pad(words, (1, 0))))[0]
            return self.join(torch.tanh(heard[:, :, None] + said[:, None])).log_softmax(-1)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        sound, words, frames = batch
        scores = model(sound, words)
        blank = scores[..., 0]
        emit = scores[:, :, :-1].gather(-1, words[:, None, :, None].expand(-1, sound.shape[1], -1, 1)).squeeze(-1)
        row = F.pad(emit[:, 0].cumsum(-1), (1, 0))
        rows = [row]
        for frame in range(1, sound.shape[1]):
            stay = row + blank[:, frame - 1]
            cells = [stay[:, 0]]
            for place in range(words.shape[1]):
                cells.append(torch.logaddexp(stay[:, place + 1], cells[-1] + emit[:, frame, place]))
            row = torch.stack(cells, 1)
            rows.append(row)
        ends = torch.stack(rows, 1)[torch.arange(len(sound)), frames - 1, -1]
        return -(ends + blank[torch.arange(len(sound)), frames - 1, -1]).mean()

    batch = torch.randn(8, 24, 40), torch.randint(1, 60, (8, 8)), torch.randint(12, 25, (8,))
    return recipe_of(Transducer, batch, loss=loss)


@structured
def soft_dtw() -> Recipe:
    """A soft alignment of two series along anti-diagonals, in place into a table."""

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        one, two = model(batch[0]), model(batch[1])
        costs = torch.cdist(one, two).square()
        size = costs.shape[1]
        table: dict[tuple[int, int], torch.Tensor] = {(0, 0): torch.zeros(len(costs))}
        far = torch.full((len(costs),), 1e8)
        for i in range(1, size + 1):
            for j in range(1, size + 1):
                near = [table.get(each, far) for each in ((i - 1, j - 1), (i - 1, j), (i, j - 1))]
                table[i, j] = costs[:, i - 1, j - 1] - torch.logsumexp(-torch.stack(near), 0)
        return table[size, size].mean()

    series = torch.randn(64, 20, 16), torch.randn(64, 20, 16)
    return recipe_of(lambda: nn.Sequential(nn.Linear(16, 256), nn.GELU(), nn.Linear(256, 16)), series, loss=loss)


@structured
def dependency_trees() -> Recipe:
    """A parser: biaffine scores of arcs, and the sum over all trees by Kirchhoff's determinant."""

    class Parser(Tagger):
        def __init__(self) -> None:
            super().__init__(128)
            self.arcs = nn.Parameter(torch.randn(64, 64) / 64)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            heads, children = super().forward(tokens).chunk(2, -1)
            return torch.einsum("bhi,ij,bcj->bhc", heads, self.arcs, children)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        tokens, heads = batch
        scores = model(tokens)
        weights = scores.exp().masked_fill(torch.eye(tokens.shape[1], dtype=torch.bool), 0)
        laplacian = torch.diag_embed(weights.sum(1)) - weights
        total = torch.logdet(laplacian[:, 1:, 1:] + 1e-4 * torch.eye(tokens.shape[1] - 1))
        chosen = scores.gather(1, heads[:, None]).squeeze(1)[:, 1:].sum(1)
        return (total - chosen).mean()

    return recipe_of(Parser, (sentences(16, 40), torch.randint(0, 40, (16, 40))), loss=loss)


@structured
def sinkhorn() -> Recipe:
    """A matching of two sets of features, normalised until it changes little."""

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        one, two = (F.normalize(model(each), dim=-1) for each in batch)
        scores = one @ two.transpose(1, 2) / 0.1
        rows, columns = torch.zeros(scores.shape[:2]), torch.zeros(scores.shape[:2])
        for _ in range(50):
            before = rows
            rows = -torch.logsumexp(scores + columns[:, None], 2)
            columns = -torch.logsumexp(scores + rows[:, :, None], 1)
            if (rows - before).abs().mean() < 1e-2:
                break
        matched = scores + rows[:, :, None] + columns[:, None]
        return -matched.diagonal(dim1=1, dim2=2).mean()

    return recipe_of(
        lambda: nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 64)),
        (torch.randn(8, 96, 32), torch.randn(8, 96, 32)),
        loss=loss,
    )


@structured
def sparsemax_attention() -> Recipe:
    """Attention by a projection on the simplex, whose support is found by sorting."""

    def sparsemax(scores: torch.Tensor) -> torch.Tensor:
        ordered, _ = scores.sort(dim=-1, descending=True)
        sums = ordered.cumsum(-1) - 1
        counts = torch.arange(1, scores.shape[-1] + 1)
        support = (counts * ordered > sums).sum(-1, keepdim=True)
        return (scores - sums.gather(-1, support - 1) / support).clamp(min=0)

    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.parts, self.head = nn.Embedding(1000, 64), nn.Linear(64, 192), nn.Linear(64, 1000)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            q, k, v = self.parts(self.embed(tokens)).chunk(3, -1)
            return self.head(sparsemax(q @ k.transpose(1, 2) / 8) @ v)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[0].flatten())

    return recipe_of(Sparse, (sentences(16, 64),), loss=loss)


@structured
def ctc_of_lengths() -> Recipe:
    """CTC after convolutions that shorten the sound, with lengths from a mask and targets without padding."""

    class Ears(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv1d(40, 128, 5, 2, 2), nn.GELU(), nn.Conv1d(128, 128, 5, 2, 2), nn.GELU())
            self.head = nn.Linear(128, 64)

        def forward(self, sound: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(sound.transpose(1, 2)).transpose(1, 2)).log_softmax(-1)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        sound, mask, words = batch
        scores = model(sound)
        frames = (mask.sum(-1) + 3) // 4
        spoken = words >= 0
        flat = words.masked_select(spoken)
        return F.ctc_loss(scores.transpose(0, 1), flat, frames, spoken.sum(-1), zero_infinity=True)

    words = torch.randint(1, 64, (12, 20)).masked_fill(torch.arange(20) >= torch.randint(6, 21, (12, 1)), -100)
    mask = torch.arange(200) < torch.randint(120, 201, (12, 1))
    return recipe_of(Ears, (torch.randn(12, 200, 40), mask, words), loss=loss)
