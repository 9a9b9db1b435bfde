"""Quantities in smaller units, letter by letter ("12 km" to "12000 m"): GRUs, attention, teacher forcing, padding."""

import argparse
import copy
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

PAD, BOS, EOS = 0, 1, 2
LETTERS = "0123456789 kmgclt"
SMALLER = {"km": ("m", 3), "kg": ("g", 3), "m": ("cm", 2), "l": ("ml", 3), "t": ("kg", 3), "cm": ("mm", 1)}


def encode(text):
    return [LETTERS.index(letter) + 3 for letter in text]


def quantities(count, seed):
    """Pairs of texts, no two of them alike."""
    numbers = [(number, unit) for number in range(1, 400) for unit in SMALLER]
    chosen = random.Random(seed).sample(numbers, count)
    return [(f"{number} {unit}", f"{number}{'0' * SMALLER[unit][1]} {SMALLER[unit][0]}") for number, unit in chosen]


class Quantities(Dataset):
    def __init__(self, pairs):
        self.pairs = pairs

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        source, target = self.pairs[index]
        return torch.tensor(encode(source)), torch.tensor([BOS, *encode(target), EOS])


def collate(rows):
    sources, targets = zip(*rows, strict=True)
    target = pad_sequence(targets, batch_first=True, padding_value=PAD)
    return {
        "source": pad_sequence(sources, batch_first=True, padding_value=PAD),
        "lengths": torch.tensor([len(source) for source in sources]),
        "given": target[:, :-1],
        "wanted": target[:, 1:],
    }


class Converter(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.embed = nn.Embedding(len(LETTERS) + 3, width, padding_idx=PAD)
        self.encoder = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * width, width)
        self.keys = nn.Linear(2 * width, width, bias=False)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.mix = nn.Linear(3 * width, width)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, len(LETTERS) + 3)

    def encode(self, source, lengths):
        packed = pack_padded_sequence(self.dropout(self.embed(source)), lengths, batch_first=True, enforce_sorted=False)
        states, last = self.encoder(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=source.shape[1])
        hidden = torch.tanh(self.bridge(torch.cat([last[0], last[1]], dim=-1)))
        return states, hidden.unsqueeze(0)

    def decode(self, given, hidden, states, padding):
        out, hidden = self.decoder(self.dropout(self.embed(given)), hidden)
        scores = out @ self.keys(states).transpose(1, 2)
        scores = scores.masked_fill(padding[:, None, :], float("-inf"))
        context = scores.softmax(dim=-1) @ states
        mixed = torch.tanh(self.mix(torch.cat([out, context], dim=-1)))
        return self.head(self.dropout(mixed)), hidden

    def forward(self, source, lengths, given):
        states, hidden = self.encode(source, lengths)
        logits, _ = self.decode(given, hidden, states, source == PAD)
        return logits


def letter_loss(logits, wanted, reduction="mean"):
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD, reduction=reduction)


@torch.no_grad()
def convert(model, batch, longest=12):
    """The letters that the model writes by itself, greedily."""
    states, hidden = model.encode(batch["source"], batch["lengths"])
    letter = torch.full((len(states), 1), BOS)
    written, done = [], torch.zeros(len(states), 1, dtype=torch.bool)
    for _ in range(longest):
        logits, hidden = model.decode(letter, hidden, states, batch["source"] == PAD)
        letter = logits.argmax(dim=-1).masked_fill(done, PAD)
        done = done | (letter == EOS)
        written.append(letter)
    return torch.cat(written, dim=1)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss, letters, right, rows = 0.0, 0, 0, 0
    for batch in loader:
        logits = model(batch["source"], batch["lengths"], batch["given"])
        loss += letter_loss(logits, batch["wanted"], "sum").item()
        letters += (batch["wanted"] != PAD).sum().item()
        written = convert(model, batch)[:, : batch["wanted"].shape[1]]
        right += (written == batch["wanted"]).all(dim=1).sum().item()
        rows += len(written)
    return loss / letters, right / rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=8e-3)
    parser.add_argument("--width", type=int, default=48)
    args = parser.parse_args()
    torch.manual_seed(17)
    pairs = quantities(1000, seed=4)
    train_loader = DataLoader(Quantities(pairs[:880]), args.batch, shuffle=True, collate_fn=collate)
    held_loader = DataLoader(Quantities(pairs[880:]), 50, collate_fn=collate)
    model = Converter(args.width, dropout=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    best, best_weights = float("inf"), None
    for epoch in range(args.epochs):
        model.train()
        summed, letters = 0.0, 0
        for batch in train_loader:
            optimizer.zero_grad()
            logits = model(batch["source"], batch["lengths"], batch["given"])
            loss = letter_loss(logits, batch["wanted"])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            count = (batch["wanted"] != PAD).sum().item()
            summed, letters = summed + loss.item() * count, letters + count
        scheduler.step()
        held_loss, exact = evaluate(model, held_loader)
        print(f"epoch {epoch}: train {summed / letters:.3f}, held out {held_loss:.3f}, {exact:.0%} exact")
        if held_loss < best:
            best, best_weights = held_loss, copy.deepcopy(model.state_dict())
    torch.save(best_weights, "units.pt")


if __name__ == "__main__":
    main()
