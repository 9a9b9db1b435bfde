"""Scores of essays from counted features, with Accelerate: accumulation, clipping, a second head for the length."""

import csv
import random
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset

config = {"epochs": 4, "batch_size": 16, "accumulate": 2, "lr": 4e-3, "warmup": 6, "features": 10, "seed": 8}


def set_all_seeds(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def write_table(path, rows, seed):
    """One essay to a row: ten features, a score of 0 to 20, the length in pages."""
    rng = np.random.default_rng(seed)
    with Path(path).open("w", newline="") as file:
        table = csv.writer(file)
        for _ in range(rows):
            x = rng.normal(0, 1, config["features"])
            pages = 4 + 1.2 * x[5] + 0.6 * x[6] + 0.2 * rng.normal()
            score = 10 + 2.5 * x[0] - 1.5 * x[1] + 1.5 * np.abs(x[2]) * np.sign(x[3]) + 0.4 * rng.normal()
            table.writerow([*x.round(4), round(score, 3), round(pages, 3)])


class Essays(Dataset):
    def __init__(self, rows, noise=0.0):
        self.features = torch.tensor([row[:-2] for row in rows], dtype=torch.float32)
        self.scores = (torch.tensor([row[-2] for row in rows], dtype=torch.float32) - 10) / 4
        self.pages = torch.tensor([row[-1] for row in rows], dtype=torch.float32) - 4
        self.noise = noise

    def __len__(self):
        return len(self.scores)

    def __getitem__(self, index):
        x = self.features[index]
        if self.noise:
            x = x + torch.from_numpy(self.noise * np.random.randn(len(x))).float()
        return {"x": x, "score": self.scores[index], "pages": self.pages[index]}


class Marker(nn.Module):
    def __init__(self, features, width=48):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(features, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Dropout(0.05),
        )
        self.score = nn.Linear(width, 1)
        self.pages = nn.Linear(width, 1)

    def forward(self, x):
        h = self.body(x)
        return self.score(h).squeeze(-1), self.pages(h).squeeze(-1)


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=config["accumulate"])
    set_all_seeds(config["seed"])
    write_table("essays.csv", 620, seed=3)
    with open("essays.csv", newline="") as file:
        rows = [[float(cell) for cell in row] for row in csv.reader(file)]
    random.shuffle(rows)
    train_set, test_set = Essays(rows[:512], noise=0.05), Essays(rows[512:])
    train_loader = DataLoader(train_set, batch_size=config["batch_size"], shuffle=True)
    test_loader = DataLoader(test_set, batch_size=32)

    model = Marker(config["features"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"], weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / config["warmup"]))
    model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, test_loader, scheduler
    )

    for epoch in range(config["epochs"]):
        model.train()
        epoch_loss = torch.zeros(())
        for batch in train_loader:
            with accelerator.accumulate(model):
                score, pages = model(batch["x"])
                loss = F.mse_loss(score, batch["score"])
                loss = loss + 0.2 * F.smooth_l1_loss(pages, batch["pages"])
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            epoch_loss += loss.detach() * len(batch["x"])
        model.eval()
        squares = seen = 0
        with torch.no_grad():
            for batch in test_loader:
                score, _ = model(batch["x"])
                score, wanted = accelerator.gather_for_metrics((score, batch["score"]))
                squares += (score - wanted).square().sum().item()
                seen += len(wanted)
        points = 4 * (squares / seen) ** 0.5
        accelerator.print(f"epoch {epoch + 1} loss {epoch_loss.item() / len(train_set):.4f} error {points:.3f} points")
    accelerator.wait_for_everyone()
    accelerator.save(accelerator.unwrap_model(model).state_dict(), "marker.pt")


if __name__ == "__main__":
    main()
