"""Judges of gymnastics: scores from a routine of moves; a moving average of the weights is what gets evaluated."""

import copy
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MOVES, LENGTH = 12, 10


@dataclass
class Config:
    routines: int = 800
    held_back: int = 150
    batch_size: int = 32
    epochs: int = 5
    lr: float = 3e-3
    warmup: int = 15
    decay: float = 0.97
    seed: int = 2024


class Routines(Dataset):
    """Moves done one after the other with their execution; the score falls when a move is repeated."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.moves = torch.randint(0, MOVES, (count, LENGTH), generator=g)
        self.execution = torch.randn(count, LENGTH, generator=g)
        worth = torch.linspace(-1, 1, MOVES)
        score = (worth[self.moves] * (1 + 0.5 * self.execution)).sum(1) + 0.4 * self.execution.sum(1)
        repeated = (self.moves[:, 1:] == self.moves[:, :-1]).sum(1)
        score = score - repeated + 0.2 * torch.randn(count, generator=g)
        self.score = score / 2.5

    def __len__(self):
        return len(self.score)

    def __getitem__(self, i):
        return {"moves": self.moves[i], "execution": self.execution[i], "score": self.score[i]}


class Judge(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.move = nn.Embedding(MOVES, width - 1)
        self.conv = nn.Conv1d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm1d(width)
        self.out = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1), nn.Linear(width, 1))

    def forward(self, moves, execution):
        x = torch.cat([self.move(moves), execution.unsqueeze(-1)], dim=-1).transpose(1, 2)
        x = torch.relu(self.norm(self.conv(x)))
        return self.out(x.mean(dim=2)).squeeze(-1)


class Average:
    """Exponential moving average of weights; buffers are copied."""

    def __init__(self, model, decay):
        self.decay = decay
        self.updates = 0
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for mine, theirs in zip(self.model.parameters(), model.parameters(), strict=True):
            mine.lerp_(theirs, 1 - decay)
        for mine, theirs in zip(self.model.buffers(), model.buffers(), strict=True):
            mine.copy_(theirs)


class Trainer:
    def __init__(self, config: Config):
        self.config = config
        torch.manual_seed(config.seed)
        self.train_loader = DataLoader(Routines(config.routines, 0), config.batch_size, shuffle=True)
        self.valid_loader = DataLoader(Routines(config.held_back, 1), 64)
        self.model = Judge()
        self.average = Average(self.model, config.decay)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr)
        steps = config.epochs * len(self.train_loader)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer,
            lambda step: min((step + 1) / config.warmup, 1 - 0.95 * step / steps),
        )
        self.loss = nn.HuberLoss()

    def train_step(self, batch):
        guess = self.model(batch["moves"], batch["execution"])
        loss = self.loss(guess, batch["score"])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.average.update(self.model)
        return loss.item() * len(guess)

    @torch.no_grad()
    def evaluate(self, model):
        model.eval()
        squared, count = 0.0, 0
        for batch in self.valid_loader:
            guess = model(batch["moves"], batch["execution"])
            squared += (guess - batch["score"]).square().sum().item()
            count += len(guess)
        return (squared / count) ** 0.5

    def run(self):
        for epoch in range(self.config.epochs):
            self.model.train()
            total = sum(self.train_step(batch) for batch in self.train_loader)
            error = self.evaluate(self.average.model)
            print(f"epoch {epoch}: loss {total / self.config.routines:.4f}, error of the average {error:.3f}")


if __name__ == "__main__":
    Trainer(Config()).run()
