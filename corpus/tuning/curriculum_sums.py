"""Running sums modulo three of longer and longer rows: an LSTM on a curriculum, short rows first on purpose."""

import torch
import torch.nn as nn

torch.manual_seed(44)


def rows(n, length, g):
    bits = torch.randint(0, 2, (n, length), generator=g)
    return bits, (bits.cumsum(1) % 3).long()


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.bits = nn.Embedding(2, 12)
        self.lstm = nn.LSTM(12, 24, batch_first=True)
        self.out = nn.Linear(24, 3)

    def forward(self, bits):
        return self.out(self.lstm(self.bits(bits))[0])


counter = Counter()
opt = torch.optim.Adam(counter.parameters(), lr=2e-2)
loss_fn = nn.CrossEntropyLoss()
train_rng, test_rng = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
for length in (3, 5, 8, 12):
    for _ in range(12):
        bits, sums = rows(32, length, train_rng)
        loss = loss_fn(counter(bits).transpose(1, 2), sums)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(counter.parameters(), 1.0)
        opt.step()
    with torch.no_grad():
        bits, sums = rows(64, 16, test_rng)
        right = (counter(bits).argmax(-1) == sums).float().mean()
    print(f"up to {length}: loss {loss.item():.3f}, right on 16: {right:.3f}")
