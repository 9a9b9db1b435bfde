"""Readers and books in two towers: dot products with in-batch negatives, popularity corrected, recall at ten."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

READERS, BOOKS, GENRES = 80, 60, 6


@dataclass
class Options:
    width: int = 16
    batch: int = 32
    steps: int = 40
    lr: float = 1e-2
    temperature: float = 0.1


def make_loans(count, seed):
    g = torch.Generator().manual_seed(seed)
    genre = torch.arange(BOOKS) % GENRES
    reader = torch.randint(READERS, (count,), generator=g)
    taste = reader % GENRES
    book = torch.randint(BOOKS // GENRES, (count,), generator=g) * GENRES + taste
    stray = torch.rand(count, generator=g) < 0.2
    book = torch.where(stray, torch.randint(BOOKS, (count,), generator=g), book)
    return reader, book, genre


class Tower(nn.Module):
    def __init__(self, entries, width, extra=0):
        super().__init__()
        self.table = nn.Embedding(entries, width)
        self.extra = nn.Embedding(extra, width) if extra else None
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.drop = nn.Dropout(0.1)

    def forward(self, ids, kind=None):
        x = self.table(ids)
        if self.extra is not None:
            x = x + self.extra(kind)
        x = self.mlp(self.drop(x))
        return F.normalize(x, dim=-1)


class TwoTowers(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.readers = Tower(READERS, width)
        self.books = Tower(BOOKS, width, extra=GENRES)

    def forward(self, reader, book, genre):
        return self.readers(reader), self.books(book, genre)


def in_batch_loss(r, b, book, popularity, temperature):
    scores = r @ b.T / temperature
    scores = scores - popularity[book].log()
    same = book[:, None] == book[None, :]
    scores = scores.masked_fill(same & ~torch.eye(len(book), dtype=torch.bool), -1e9)
    return F.cross_entropy(scores, torch.arange(len(book)))


@torch.no_grad()
def recall(model, reader, book, genre, k=10):
    model.eval()
    scores = model.readers(reader) @ model.books(torch.arange(BOOKS), genre).T
    found = (scores.topk(k, dim=1).indices == book[:, None]).any(dim=1)
    model.train()
    return found.float().mean().item()


def main(o=None):
    o = o or Options()
    torch.manual_seed(120)
    reader, book, genre = make_loans(600, seed=1)
    new_reader, new_book, _ = make_loans(300, seed=2)
    unseen = ~torch.isin(BOOKS * new_reader + new_book, BOOKS * reader + book)
    new_reader, new_book = new_reader[unseen], new_book[unseen]
    popularity = torch.bincount(book, minlength=BOOKS).clamp(min=1) / len(book)
    model = TwoTowers(o.width)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=o.lr)
    recalls = []
    for step in range(o.steps):
        rows = torch.randint(len(reader), (o.batch,))
        r, b = model(reader[rows], book[rows], genre[book[rows]])
        loss = in_batch_loss(r, b, book[rows], popularity, o.temperature)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 20 == 0:
            recalls.append(recall(model, new_reader, new_book, genre))
            print(f"step {step + 1}: loss {loss.item():.3f}, recall at ten {recalls[-1]:.3f}")


main()
