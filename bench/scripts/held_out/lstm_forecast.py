"""Trains an LSTM to forecast series of many lengths, packed, in buckets of like length."""

import random
from collections import defaultdict

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

random.seed(2024)
torch.manual_seed(2024)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Series(Dataset):
    def __init__(self, n):
        self.items = []
        for _ in range(n):
            length = random.randint(20, 72)
            t = torch.arange(length + 1, dtype=torch.float32)
            period, phase = 5 + 20 * random.random(), random.random() * 6.28
            value = torch.sin(6.28 * t / period + phase) + 0.01 * t + 0.1 * torch.randn(length + 1)
            calendar = torch.stack([(t % 7) / 7, (t % 24) / 24], dim=1)
            self.items.append((torch.cat([value[:, None], calendar], 1)[:-1], value[1:]))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Buckets(Sampler):
    """Batches of indices whose lengths fall into the same bucket."""

    def __init__(self, dataset, batch_size, width=16):
        self.batch_size = batch_size
        self.by_bucket = defaultdict(list)
        for i, (x, _) in enumerate(dataset.items):
            self.by_bucket[len(x) // width].append(i)

    def __iter__(self):
        batches = []
        for indices in self.by_bucket.values():
            random.shuffle(indices)
            batches += [indices[i : i + self.batch_size] for i in range(0, len(indices), self.batch_size)]
        random.shuffle(batches)
        return iter(batches)

    def __len__(self):
        return sum(-(-len(v) // self.batch_size) for v in self.by_bucket.values())


def collate(batch):
    xs = [x for x, _ in batch]
    ys = [y for _, y in batch]
    return pack_sequence(xs, enforce_sorted=False), pack_sequence(ys, enforce_sorted=False)


class Forecaster(nn.Module):
    def __init__(self, inputs=3, hidden=128, layers=2):
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, layers, batch_first=True, dropout=0.2)
        self.head = nn.Linear(hidden, 2)

    def forward(self, packed: PackedSequence):
        out, (_h, _c) = self.lstm(packed)
        mean, raw = self.head(out.data).unbind(-1)
        return mean, nn.functional.softplus(raw) + 1e-3, out


data = Series(240)
train = DataLoader(data, batch_sampler=Buckets(data, 24), collate_fn=collate)
model = Forecaster().to(device)
optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)
nll = nn.GaussianNLLLoss()
history = []
for epoch in range(1):
    for i, (x, y) in enumerate(train):
        x, y = x.to(device), y.to(device)
        mean, std, out = model(x)
        loss = nll(mean, y.data, std**2)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        padded, lengths = pad_packed_sequence(out, batch_first=True)
        history.append(loss.item())
        print(f"epoch {epoch} batch {i + 1}/{len(train)} longest {int(lengths.max())} loss {history[-1]:.4f}")

model.eval()
with torch.no_grad():
    one = pack_sequence([data[0][0]]).to(device)
    mean, std, _ = model(one)
    print("forecast", mean[-1].item(), "+-", std[-1].item())
