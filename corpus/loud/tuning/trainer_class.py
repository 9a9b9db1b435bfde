from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    words: int = 40
    classes: int = 5
    width: int = 12
    batch: int = 6
    lr: float = 1e-2


class Reviews(Dataset):
    def __init__(self, config, size=36):
        self.config = config
        generator = torch.Generator().manual_seed(3)
        self.lengths = torch.randint(3, 9, (size,), generator=generator).tolist()
        self.texts = [torch.randint(1, config.words, (length,), generator=generator) for length in self.lengths]
        self.stars = torch.randint(0, config.classes, (size,), generator=generator)

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return {"tokens": self.texts[index], "stars": self.stars[index]}


def pad(samples):
    longest = max(len(sample["tokens"]) for sample in samples)
    tokens = torch.zeros(len(samples), longest, dtype=torch.long)
    for row, sample in enumerate(samples):
        tokens[row, : len(sample["tokens"])] = sample["tokens"]
    stars = torch.stack([sample["stars"] for sample in samples])
    return {"tokens": tokens, "stars": stars}


class Bag(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.table = nn.Embedding(config.words, config.width, padding_idx=0)
        self.hidden = nn.Linear(config.width, 2 * config.width)
        self.dropout = nn.Dropout(0.1)
        self.stars = nn.Linear(2 * config.width, config.classes)

    def forward(self, tokens):
        mask = (tokens != 0).unsqueeze(-1).float()
        summed = (self.table(tokens) * mask).sum(1)
        mean = summed / mask.sum(1)
        hidden = torch.relu(self.hidden(mean))
        return self.stars(self.dropout(hidden))


class Trainer:
    def __init__(self, config):
        self.config = config
        self.model = Bag(config)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr)
        self.loader = DataLoader(Reviews(config), batch_size=config.batch, collate_fn=pad, num_workers=0)
        self.running = 0.0

    def train_step(self, batch):
        logits = self.model(batch["tokens"])
        loss = self.criterion(logits, batch["stars"])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.running = 0.9 * self.running + 0.1 * loss.item()
        return loss.item()

    def fit(self, epochs=1):
        for _ in range(epochs):
            for batch in self.loader:
                self.train_step(batch)


if __name__ == "__main__":
    torch.manual_seed(0)
    Trainer(Config()).fit()
