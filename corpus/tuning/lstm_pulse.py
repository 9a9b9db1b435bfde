"""Beats in pulse recordings of all lengths, sample by sample: a stream read by workers, an LSTM, accumulation."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


def recording(number):
    """A noisy signal with bumps; wide ones are beats, narrow ones are not. The first samples are not annotated."""
    g = torch.Generator().manual_seed(number)
    length = int(torch.randint(16, 90, (), generator=g))
    signal, beat = 0.25 * torch.randn(length, generator=g), torch.zeros(length)
    at = int(torch.randint(2, 8, (), generator=g))
    while at < length - 6:
        wide = bool(torch.rand((), generator=g) < 0.5)
        width = 5 if wide else 2
        signal[at : at + width] += 1.5
        beat[at + 2 : at + width] = float(wide)
        at += width + int(torch.randint(3, 9, (), generator=g))
    known = torch.ones(length)
    known[:4] = 0
    return {"signal": signal, "beat": beat, "known": known}


class Recordings(IterableDataset):
    def __init__(self, first, count, shuffled):
        self.numbers, self.shuffled, self.epoch = torch.arange(first, first + count), shuffled, 0

    def __iter__(self):
        numbers = self.numbers
        if self.shuffled:
            order = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(self.epoch))
            numbers = numbers[order]
        worker = get_worker_info()
        if worker is not None:
            numbers = numbers[worker.id :: worker.num_workers]
        for number in numbers.tolist():
            yield recording(number)


def collate(rows):
    return {name: pad_sequence([row[name] for row in rows], batch_first=True) for name in rows[0]}


class PulseNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.enter = nn.Linear(2, width)
        self.drop = nn.Dropout(0.1)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.gate = nn.Linear(width, width)
        self.beat = nn.Linear(width, 1)

    def forward(self, signal):
        change = torch.diff(signal, dim=1, prepend=signal[:, :1])
        x = self.drop(torch.relu(self.enter(torch.stack([signal, change], dim=2))))
        out, _ = self.lstm(x)
        out = out * torch.sigmoid(self.gate(x))
        return self.beat(out).squeeze(2)


class PulseTrainer:
    ACCUMULATE = 3

    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.criterion = nn.BCEWithLogitsLoss(reduction="none")

    def step(self, group):
        self.model.train()
        samples = sum(batch["known"].sum() for batch in group).clamp(min=1)
        self.optimizer.zero_grad()
        total = 0.0
        for batch in group:
            each = self.criterion(self.model(batch["signal"]), batch["beat"])
            loss = (each * batch["known"]).sum() / samples
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.2)
        self.optimizer.step()
        return total

    def epoch(self, loader):
        group, losses = [], []
        for batch in loader:
            group.append(batch)
            if len(group) == self.ACCUMULATE:
                losses.append(self.step(group))
                group = []
        if group:
            losses.append(self.step(group))
        return losses

    def evaluate(self, loader):
        self.model.eval()
        right = known = 0.0
        with torch.no_grad():
            for batch in loader:
                found = torch.sigmoid(self.model(batch["signal"])) > 0.5
                hits = (found == batch["beat"].bool()) * batch["known"]
                right += hits.sum().item()
                known += batch["known"].sum().item()
        return right / known


def run():
    torch.manual_seed(16)
    train_set = Recordings(0, 208, shuffled=True)
    test_set = Recordings(5000, 42, shuffled=False)
    train_loader = DataLoader(train_set, batch_size=8, num_workers=2, collate_fn=collate)
    test_loader = DataLoader(test_set, batch_size=8, collate_fn=collate)
    trainer = PulseTrainer(PulseNet(), lr=2e-2)
    for epoch in range(6):
        train_set.epoch = epoch
        losses = trainer.epoch(train_loader)
        print(f"{epoch}: loss {losses[0]:.3f} to {losses[-1]:.3f}, {trainer.evaluate(test_loader):.3f} right")


if __name__ == "__main__":
    run()
