"""Next-symbol model on one long stream, trained with truncated back-propagation and carried state.

The source switches between four "dialects" every so often; inside a dialect each symbol has a
favourite successor. Knowing the dialect needs memory that reaches back over several chunks.
"""
import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    seed: int = 5
    alphabet: int = 16
    dialects: int = 4
    stay: float = 0.985
    favourite: float = 0.75
    train_len: int = 14500
    val_len: int = 3000
    streams: int = 16
    chunk: int = 6
    hidden: int = 48
    epochs: int = 4
    lr: float = 8e-3
    clip: float = 1.0


def make_source(cfg, rng):
    """One successor table per dialect."""
    return np.stack([rng.permutation(cfg.alphabet) for _ in range(cfg.dialects)])


def sample_stream(cfg, tables, length, rng):
    symbols = np.empty(length, dtype=np.int64)
    dialect, current = 0, 0
    for i in range(length):
        if rng.random() > cfg.stay:
            dialect = int(rng.integers(cfg.dialects))
        current = tables[dialect, current] if rng.random() < cfg.favourite else int(rng.integers(cfg.alphabet))
        symbols[i] = current
    return torch.from_numpy(symbols)


def batchify(stream, n_streams):
    """Cut one stream into n_streams long rows; row b continues from column to column."""
    length = len(stream) // n_streams
    return stream[: length * n_streams].view(n_streams, length)


def chunks(rows, size):
    for start in range(0, rows.shape[1] - 1, size):
        stop = min(start + size, rows.shape[1] - 1)
        yield rows[:, start:stop], rows[:, start + 1: stop + 1]


class StreamModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.alphabet, 24)
        self.cells = nn.ModuleList([
            nn.GRU(24, cfg.hidden, batch_first=True),
            nn.GRU(cfg.hidden, cfg.hidden, batch_first=True),
        ])
        self.out = nn.Linear(cfg.hidden, cfg.alphabet)

    def forward(self, x, state=None):
        h = self.embed(x)
        state = state or [None] * len(self.cells)
        new_state = []
        for cell, s in zip(self.cells, state):
            h, s = cell(h, s)
            new_state.append(s)
        return self.out(h), new_state


def validate(model, rows, cfg):
    model.eval()
    state = None
    nll, hits, count = 0.0, 0, 0
    with torch.no_grad():
        for x, y in chunks(rows, cfg.chunk):
            logits, state = model(x, state)
            nll += F.cross_entropy(logits.reshape(-1, cfg.alphabet), y.reshape(-1), reduction="sum").item()
            hits += (logits.argmax(-1) == y).sum().item()
            count += y.numel()
    model.train()
    bits = nll / count / math.log(2)
    return bits, hits / count


def train_epoch(model, rows, optimizer, cfg):
    state = None
    losses = []
    for x, y in chunks(rows, cfg.chunk):
        logits, state = model(x, state)
        loss = F.cross_entropy(logits.reshape(-1, cfg.alphabet), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
        optimizer.step()
        state = [s.detach() for s in state]
        losses.append(loss.item())
    return sum(losses) / len(losses)


def main():
    cfg = Config()
    rng = np.random.default_rng(cfg.seed)
    torch.manual_seed(cfg.seed)
    tables = make_source(cfg, rng)
    train_rows = batchify(sample_stream(cfg, tables, cfg.train_len, rng), cfg.streams)
    val_rows = batchify(sample_stream(cfg, tables, cfg.val_len, rng), 4)

    model = StreamModel(cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.6)

    bits, acc = validate(model, val_rows, cfg)
    print(f"start: {bits:.3f} bits per symbol, accuracy {acc:.3f}")
    for epoch in range(cfg.epochs):
        loss = train_epoch(model, train_rows, optimizer, cfg)
        scheduler.step()
        bits, acc = validate(model, val_rows, cfg)
        print(f"epoch {epoch + 1}: train loss {loss:.4f} nats, validation {bits:.3f} bits, accuracy {acc:.3f}")
    print(f"end: {bits:.3f} bits per symbol, accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
