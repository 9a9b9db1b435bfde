"""Quotes packed into rows: a small decoder that keeps them apart, by Accelerate, interrupted and resumed."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset

SPEAKERS = {"Sage": "abcdefgh", "Fool": "hgfedcba", "King": "acegbdfh"}
SYMBOLS = "\n:" + "".join(sorted(set("".join(SPEAKERS) + "".join(SPEAKERS.values()))))
LENGTH, IGNORE = 40, -100


def quote(generator):
    speaker = list(SPEAKERS)[int(torch.randint(len(SPEAKERS), (), generator=generator))]
    wheel = SPEAKERS[speaker]
    at, size = (int(torch.randint(*span, (), generator=generator)) for span in ((0, 8), (5, 13)))
    said = speaker + ":"
    for stride in torch.randint(1, 3, (size,), generator=generator).tolist():
        said += wheel[at]
        at = (at + stride) % 8
    return said + "\n"


class PackedQuotes(Dataset):
    def __init__(self, rows, seed):
        generator = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(rows):
            ids, quotes, places, number = [], [], [], 0
            while len(ids) < LENGTH + 1:
                text = quote(generator)
                ids += [SYMBOLS.index(c) for c in text]
                quotes += [number] * len(text)
                places += range(len(text))
                number += 1
            self.rows.append(torch.tensor([ids, quotes, places])[:, : LENGTH + 1])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        ids, quotes, places = self.rows[index]
        labels = ids[1:].clone()
        labels[quotes[1:] != quotes[:-1]] = IGNORE
        return {"ids": ids[:-1], "quotes": quotes[:-1], "places": places[:-1], "labels": labels}


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(0.05))

    def forward(self, x, visible):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=visible.unsqueeze(1))
        x = x + self.join(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class QuoteModel(nn.Module):
    def __init__(self, width=32, heads=4, depth=2):
        super().__init__()
        self.symbols = nn.Embedding(len(SYMBOLS), width)
        self.places = nn.Embedding(LENGTH, width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(SYMBOLS))

    def forward(self, ids, quotes, places):
        x = self.symbols(ids) + self.places(places)
        past = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).tril()
        visible = past & (quotes.unsqueeze(2) == quotes.unsqueeze(1))
        for layer in self.layers:
            x = layer(x, visible)
        return self.head(self.norm(x))


def loss_of(model, batch, reduction="mean"):
    logits = model(batch["ids"], batch["quotes"], batch["places"])
    return F.cross_entropy(logits.transpose(1, 2), batch["labels"], ignore_index=IGNORE, reduction=reduction)


def run(first, last, epochs):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    train_loader = DataLoader(PackedQuotes(256, seed=1), batch_size=16, shuffle=True)
    held_loader = DataLoader(PackedQuotes(40, seed=2), batch_size=16)
    model = QuoteModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3)
    steps = epochs * len(train_loader) // 2
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: min(1.0, (done + 1) / 6) * (0.55 + 0.45 * math.cos(math.pi * done / steps))
    )
    model, optimizer, train_loader, held_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, held_loader, scheduler
    )
    if first > 0:
        accelerator.load_state("quotes_state")
    for epoch in range(first, last):
        model.train()
        total = 0.0
        for batch in train_loader:
            with accelerator.accumulate(model):
                loss = loss_of(model, batch)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.25)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            total += loss.item()
        model.eval()
        held, tokens = 0.0, 0
        with torch.no_grad():
            for batch in held_loader:
                held += loss_of(model, batch, reduction="sum").item()
                tokens += (batch["labels"] != IGNORE).sum().item()
        accelerator.print(f"{epoch}: {total / len(train_loader):.3f}, held {held / tokens:.3f}")
    accelerator.save_state("quotes_state")


if __name__ == "__main__":
    torch.manual_seed(12)
    run(0, 2, epochs=4)
    run(2, 4, epochs=4)
