"""Late or not, from the stops of a bus so far: packed sequences, layer-wise rates, early stopping, class weights."""

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader

STOPS = 30  # 0 is padding


def trips(n, seed):
    rng = np.random.default_rng(seed)
    slow = np.random.default_rng(0).random(STOPS + 1) < 0.3
    found = []
    for _ in range(n):
        length = rng.integers(4, 15)
        start = rng.integers(1, STOPS + 1)
        stops = (start + np.arange(length) * rng.choice([1, 2, 3])) % STOPS + 1
        load = rng.beta(2, 3)
        delay = (slow[stops] * (0.5 + load)).sum() - 0.3 * length + rng.normal(0, 0.3)
        found.append((stops.astype(np.int64), np.float32(load), np.int64(delay > 0.5)))
    return found


def collate(rows):
    stops = [torch.from_numpy(row[0]) for row in rows]
    return {
        "stops": pad_sequence(stops, batch_first=True, padding_value=0),
        "length": torch.tensor([len(s) for s in stops]),
        "load": torch.tensor([row[1] for row in rows]),
        "late": torch.tensor([row[2] for row in rows]),
    }


class DelayNet(nn.Module):
    def __init__(self, dim=16, hidden=32):
        super().__init__()
        self.stop = nn.Embedding(STOPS + 1, dim, padding_idx=0)
        self.rnn = nn.GRU(dim + 1, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Sequential(nn.Linear(2 * hidden, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))

    def forward(self, batch):
        stops = self.stop(batch["stops"])
        load = (batch["load"][:, None, None] * 2 - 1).expand(-1, stops.shape[1], 1)
        packed = pack_padded_sequence(
            torch.cat([stops, load], dim=2), batch["length"], batch_first=True, enforce_sorted=False
        )
        _, last = self.rnn(packed)  # (directions, batch, hidden), at the true ends
        return self.head(torch.cat([last[0], last[1]], dim=1))


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.waited, self.state = patience, float("inf"), 0, None

    def __call__(self, value, model):
        if value < self.best:
            self.best, self.waited = value, 0
            self.state = {k: v.detach().clone() for k, v in model.state_dict().items()}
        else:
            self.waited += 1
        return self.waited > self.patience


@torch.no_grad()
def validate(model, loader, weight):
    model.eval()
    loss = scale = right = rows = 0.0
    for batch in loader:
        out, late = model(batch), batch["late"]
        loss += nn.functional.cross_entropy(out, late, weight=weight, reduction="sum").item()
        scale += weight[late].sum().item()
        right += (out.argmax(dim=1) == late).sum().item()
        rows += len(late)
    return loss / scale, right / rows


torch.manual_seed(88)
train_rows = trips(500, seed=1)
train_loader = DataLoader(train_rows, batch_size=32, shuffle=True, collate_fn=collate)
valid_loader = DataLoader(trips(120, seed=2), batch_size=64, collate_fn=collate)
late = torch.tensor([row[2] for row in train_rows])
counts = torch.bincount(late, minlength=2).float()
weight = counts.sum() / (2 * counts)

model = DelayNet()
optimizer = torch.optim.Adam(
    [
        {"params": model.stop.parameters(), "lr": 2e-2},
        {"params": model.rnn.parameters(), "lr": 5e-3},
        {"params": model.head.parameters(), "lr": 2e-3, "weight_decay": 1e-4},
    ]
)
stopping = EarlyStopping(patience=2)
for epoch in range(6):
    model.train()
    for batch in train_loader:
        loss = nn.functional.cross_entropy(model(batch), batch["late"], weight=weight)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    value, accuracy = validate(model, valid_loader, weight)
    print(f"{epoch} validation {value:.3f} accuracy {accuracy:.3f}")
    if stopping(value, model):
        break
model.load_state_dict(stopping.state)
print(f"best {stopping.best:.3f}, again {validate(model, valid_loader, weight)[0]:.3f}")
