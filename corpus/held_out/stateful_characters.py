"""Characters of a log book: a GRU reads columns of one long text, window after window, and carries its state along."""

import math
import random

import torch
import torch.nn.functional as F
from torch import nn

ROWS, WINDOW, EPOCHS = 12, 24, 5


def write_book(sentences, seed):
    rng = random.Random(seed)
    days = ["monday", "tuesday", "friday"]
    winds = {"north": "cold", "south": "warm", "west": "wet"}
    text = []
    for _ in range(sentences):
        wind = rng.choice(list(winds))
        when, knots = f"{rng.choice(days)} at {rng.randint(0, 23)}", rng.randint(2, 39)
        text.append(f"on {when} wind {knots} from the {wind}, {winds[wind]} air. ")
    return "".join(text)


class Reader(nn.Module):
    def __init__(self, characters, width=64):
        super().__init__()
        self.embed = nn.Embedding(characters, 24)
        self.gru = nn.GRU(24, width, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(width, characters)

    def forward(self, x, state):
        h, state = self.gru(self.embed(x), state)
        return self.out(self.drop(h)), state


def columns(numbers, rows):
    """One long text as rows that lie side by side; the end that fills no row is left out."""
    length = (len(numbers) - 1) // rows
    x = numbers[: rows * length].view(rows, length)
    y = numbers[1 : rows * length + 1].view(rows, length)
    return x, y


def windows(x, y):
    for start in range(0, x.size(1), WINDOW):
        yield x[:, start : start + WINDOW], y[:, start : start + WINDOW]


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    total, count, state = 0.0, 0, None
    for inputs, targets in windows(x, y):
        logits, state = model(inputs, state)
        total += F.cross_entropy(logits.transpose(1, 2), targets, reduction="sum").item()
        count += targets.numel()
    return total / count


def main():
    random.seed(9)
    torch.manual_seed(9)
    book, other = write_book(110, seed=1), write_book(30, seed=2)
    letters = sorted(set(book))
    number = {letter: i for i, letter in enumerate(letters)}
    x, y = columns(torch.tensor([number[c] for c in book]), ROWS)
    test_x, test_y = columns(torch.tensor([number[c] for c in other]), 4)
    model = Reader(len(letters))
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)
    for epoch in range(EPOCHS):
        model.train()
        total, count, state = 0.0, 0, None
        for inputs, targets in windows(x, y):
            if state is not None:
                state = state.detach()
            logits, state = model(inputs, state)
            loss = F.cross_entropy(logits.transpose(1, 2), targets)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item() * targets.numel()
            count += targets.numel()
        scheduler.step()
        tested = evaluate(model, test_x, test_y)
        print(f"epoch {epoch}: train {total / count:.4f} test {tested:.4f} ({tested / math.log(2):.3f} bits a letter)")
    torch.save({"model": model.state_dict(), "letters": letters}, "reader.pt")


if __name__ == "__main__":
    main()
