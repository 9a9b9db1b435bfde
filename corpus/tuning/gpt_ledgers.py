"""A small GPT on ledgers: entries that must balance, packed into rows with one attention block per document."""

import argparse
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

PAD, BOS, EOS, DEBIT, CREDIT = 0, 1, 2, 3, 4
ACCOUNTS, AMOUNTS = 20, 300
VOCAB = 5 + ACCOUNTS + AMOUNTS


def write_ledgers(path: str, count: int, seed: int) -> np.ndarray:
    """Each debit is followed by a credit of the same amount on the account's partner; returns where ledgers begin."""
    rng = np.random.default_rng(seed)
    tokens, begins = [], [0]
    for _ in range(count):
        tokens.append(BOS)
        for _ in range(rng.integers(2, 6)):
            account = rng.integers(ACCOUNTS)
            amount = min(int(rng.geometric(0.08)) * 12, AMOUNTS - 1)
            tokens += [DEBIT, 5 + account, 5 + ACCOUNTS + amount]
            tokens += [CREDIT, 5 + (account + ACCOUNTS // 2) % ACCOUNTS, 5 + ACCOUNTS + amount]
        tokens.append(EOS)
        begins.append(len(tokens))
    np.array(tokens).astype(np.uint16).tofile(path)
    return np.array(begins)


class Ledgers(IterableDataset):
    def __init__(self, path: str, begins: np.ndarray, length: int, shuffle: bool) -> None:
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")
        self.begins, self.length, self.shuffle = begins, length, shuffle
        self.epoch = 0

    def __iter__(self):
        order = np.arange(len(self.begins) - 1)
        if self.shuffle:
            order = np.random.default_rng(self.epoch).permutation(order)
        worker = get_worker_info()
        if worker is not None:
            order = order[worker.id :: worker.num_workers]
        row = []
        for index in order:
            document = self.tokens[self.begins[index] : self.begins[index + 1]].astype(np.int64)
            if sum(map(len, row)) + len(document) > self.length:
                yield self.pack(row)
                row = []
            row.append(document)
        yield self.pack(row)

    def pack(self, row: list[np.ndarray]) -> dict[str, torch.Tensor]:
        """One row: tokens, what comes after each, the document and the position within it."""
        tokens = np.full(self.length, PAD)
        labels, document, position = np.full_like(tokens, PAD), np.zeros_like(tokens), np.zeros_like(tokens)
        at = 0
        for number, text in enumerate(row, start=1):
            here = slice(at, at + len(text))
            tokens[here], document[here], position[here] = text, number, np.arange(len(text))
            labels[at : at + len(text) - 1] = text[1:]
            at += len(text)
        row = {"tokens": tokens, "labels": labels, "document": document, "position": position}
        return {name: torch.from_numpy(value) for name, value in row.items()}


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        half = width // heads // 2
        angles = torch.arange(length).float()[:, None] * 100.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def turn(self, x, position):
        cos, sin = self.cos[position][:, None], self.sin[position][:, None]
        one, two = x.chunk(2, dim=-1)
        return torch.cat([one * cos - two * sin, one * sin + two * cos], dim=-1)

    def forward(self, x, allowed, position):
        batch, time, width = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = self.turn(q, position), self.turn(k, position)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(~allowed[:, None], float("-inf"))
        weights = F.softmax(scores, dim=-1)
        mixed = (weights @ v).transpose(1, 2).reshape(batch, time, width)
        return self.out(mixed)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, length)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, allowed, position):
        x = x + self.attention(self.norm1(x), allowed, position)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, width: int, depth: int, heads: int, length: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.blocks = nn.ModuleList([Block(width, heads, length) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCAB, bias=False)
        nn.init.normal_(self.embed.weight, std=0.05)
        self.head.weight = self.embed.weight

    def forward(self, tokens, document, position):
        time = tokens.shape[1]
        causal = torch.ones(time, time, dtype=torch.bool).tril()
        allowed = causal & (document[:, :, None] == document[:, None, :])
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, allowed, position)
        return self.head(self.norm(x))


def total_loss(model, batch):
    """The sum over all tokens that have a label."""
    logits = model(batch["tokens"], batch["document"], batch["position"])
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=PAD, reduction="sum")


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    summed = count = 0.0
    for batch in loader:
        summed += total_loss(model, batch).item()
        count += (batch["labels"] != PAD).sum().item()
    return summed / count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-2)
    args = parser.parse_args()
    torch.manual_seed(3)
    train_set = Ledgers("train.bin", write_ledgers("train.bin", 288, seed=1), args.length, shuffle=True)
    val_set = Ledgers("val.bin", write_ledgers("val.bin", 40, seed=2), args.length, shuffle=False)
    train_loader = DataLoader(train_set, batch_size=8, num_workers=2)
    val_loader = DataLoader(val_set, batch_size=8)
    model = GPT(args.width, depth=2, heads=2, length=args.length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 8))
    step = 0
    for epoch in range(args.epochs):
        model.train()
        train_set.epoch = epoch
        summed = 0.0
        batches = list(train_loader)
        for first in range(0, len(batches), 2):
            group = batches[first : first + 2]
            count = sum((batch["labels"] != PAD).sum() for batch in group)
            optimizer.zero_grad()
            for batch in group:
                loss = total_loss(model, batch) / count
                loss.backward()
                summed += loss.item()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            step += 1
        mean = summed / math.ceil(len(batches) / 2)
        print(f"epoch {epoch + 1} step {step} loss {mean:.3f} val {evaluate(model, val_loader):.3f}")
    torch.save({"model": model.state_dict(), "step": step}, "ledgers.pt")


if __name__ == "__main__":
    main()
