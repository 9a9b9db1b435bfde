"""Prices of boats from their papers; the run is stopped after three epochs and goes on with every state it had."""

import os
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CHECKPOINT = "boats.ckpt"


def boats(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Length, age, engine, berths, keel and wood; the price is logarithmic, and old wood is dear."""
    rng = np.random.default_rng(seed)
    papers = rng.standard_normal((count, 6))
    price = 1.2 * papers[:, 0] - 0.6 * papers[:, 1] + 0.4 * papers[:, 2] + 0.7 * papers[:, 5] * (papers[:, 1] > 0)
    price += 0.1 * rng.standard_normal(count)
    return torch.tensor(papers, dtype=torch.float32), torch.tensor(price, dtype=torch.float32).unsqueeze(1)


class Run:
    """All that changes while training, so that all of it can be saved and restored."""

    def __init__(self, epochs: int = 6, batch_size: int = 24) -> None:
        self.epochs = epochs
        self.generator = torch.Generator().manual_seed(12)
        train, valid = TensorDataset(*boats(360, seed=1)), TensorDataset(*boats(90, seed=2))
        self.train_loader = DataLoader(train, batch_size, shuffle=True, generator=self.generator)
        self.valid_loader = DataLoader(valid, batch_size)
        self.model = nn.Sequential(
            nn.Linear(6, 48),
            nn.BatchNorm1d(48),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(48, 24),
            nn.ReLU(),
            nn.Linear(24, 1),
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=8e-3, weight_decay=1e-2)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=8e-3, epochs=epochs, steps_per_epoch=len(self.train_loader)
        )
        self.ema = torch.optim.swa_utils.AveragedModel(
            self.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.95), use_buffers=True
        )
        self.criterion = nn.SmoothL1Loss()
        self.epoch, self.best = 0, float("inf")

    def save(self) -> None:
        state = {
            "epoch": self.epoch,
            "best": self.best,
            "model": self.model.state_dict(),
            "ema": self.ema.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "loader": self.generator.get_state(),
            "torch": torch.get_rng_state(),
            "random": random.getstate(),
        }
        torch.save(state, CHECKPOINT + ".part")
        os.replace(CHECKPOINT + ".part", CHECKPOINT)

    def restore(self) -> None:
        state = torch.load(CHECKPOINT, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.ema.load_state_dict(state["ema"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.generator.set_state(state["loader"])
        torch.set_rng_state(state["torch"])
        random.setstate(state["random"])
        self.epoch, self.best = state["epoch"], state["best"]

    def train_epoch(self) -> float:
        self.model.train()
        total = 0.0
        for papers, price in self.train_loader:
            loss = self.criterion(self.model(papers), price)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            self.ema.update_parameters(self.model)
            total += loss.item() * len(price)
        return total / len(self.train_loader.dataset)

    @torch.no_grad()
    def evaluate(self) -> float:
        self.ema.eval()
        total = sum(self.criterion(self.ema(papers), price).item() * len(price) for papers, price in self.valid_loader)
        return total / len(self.valid_loader.dataset)

    def go(self, until: int) -> None:
        while self.epoch < until:
            loss = self.train_epoch()
            valid = self.evaluate()
            self.epoch += 1
            if valid < self.best:
                self.best = valid
                torch.save(self.ema.module.state_dict(), "best.pt")
            self.save()
            print(f"epoch {self.epoch} loss {loss:.4f} valid {valid:.4f} lr {self.scheduler.get_last_lr()[0]:.5f}")


if __name__ == "__main__":
    torch.manual_seed(12)
    random.seed(12)
    Run().go(until=3)  # the machine is needed for something else
    second = Run()
    second.restore()
    print(f"resumed after epoch {second.epoch}")
    second.go(until=second.epochs)
