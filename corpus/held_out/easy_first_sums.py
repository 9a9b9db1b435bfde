"""Sums of many digits, easy ones first: the longest sum grows from stage to stage, within a stage they are shuffled."""

import random
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

PAD, BASE = 10, 7


@dataclass
class Settings:
    stages: list[int] = field(default_factory=lambda: [3, 5, 7])
    epochs_per_stage: int = 2
    sums: int = 900
    batch: int = 48
    lr: float = 5e-3
    width: int = 48
    seed: int = 14


class Sums(Dataset):
    """Digits, and their sum modulo seven after every digit; longer ones stand later in the list."""

    def __init__(self, count, longest, seed, without=()):
        rng = random.Random(seed)
        rows = [[rng.randrange(10) for _ in range(rng.randint(2, longest))] for _ in range(count)]
        self.rows = sorted((row for row in rows if row not in without), key=len)
        self.lengths = [len(row) for row in self.rows]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        digits = torch.tensor(self.rows[i])
        return digits, digits.cumsum(0) % BASE

    def up_to(self, length):
        return Subset(self, [i for i, n in enumerate(self.lengths) if n <= length])


def collate(rows):
    digits, sums = zip(*rows, strict=True)
    pad = nn.utils.rnn.pad_sequence
    return pad(digits, batch_first=True, padding_value=PAD), pad(sums, batch_first=True, padding_value=-100)


class Adder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed = nn.Embedding(11, width, padding_idx=PAD)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, BASE)

    def forward(self, digits):
        h, _ = self.gru(self.embed(digits))
        return self.out(h)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = count = 0
    for digits, sums in loader:
        real = sums != -100
        right += (model(digits).argmax(-1) == sums)[real].sum().item()
        count += real.sum().item()
    return right / count


def main():
    s = Settings()
    random.seed(s.seed)
    torch.manual_seed(s.seed)
    train = Sums(s.sums, s.stages[-1], seed=1)
    test = Sums(200, s.stages[-1], seed=2, without=train.rows)
    test_loader = DataLoader(test, batch_size=100, collate_fn=collate)
    model = Adder(s.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=s.lr)
    for stage, longest in enumerate(s.stages):
        part = train.up_to(longest)
        loader = DataLoader(part, batch_size=s.batch, shuffle=True, collate_fn=collate)
        for epoch in range(s.epochs_per_stage):
            model.train()
            total = words = 0
            for digits, sums in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(digits).transpose(1, 2), sums, ignore_index=-100)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                n = (sums != -100).sum().item()
                total, words = total + loss.item() * n, words + n
            accuracy = evaluate(model, test_loader)
            print(f"stage {stage} ({len(part)} sums) epoch {epoch}: loss {total / words:.4f} accuracy {accuracy:.3f}")
    torch.save(model.state_dict(), "adder.pt")


if __name__ == "__main__":
    main()
