"""Seismograms told apart with Lightning: earthquake, quarry blast or passing lorry; a data module and a 1-d network."""

import itertools
import logging
import warnings

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

KINDS = ("earthquake", "blast", "lorry")
LENGTH = 96


def record(kind, rng):
    """Three axes of one event, in counts of the instrument."""
    t = np.arange(LENGTH)
    arrival = rng.integers(10, 30)
    after = np.clip(t - arrival, 0, None)
    if kind == 0:  # a weak first wave, a strong second one
        second = np.clip(after - rng.integers(15, 30), 0, None)
        shape = 0.5 * np.exp(-after / 20) * (after > 0) + 1.5 * np.exp(-second / 25) * (second > 0)
        rate = rng.uniform(0.25, 0.45)
    elif kind == 1:  # strong at once
        shape, rate = 2.0 * np.exp(-after / 10) * (after > 0), rng.uniform(0.5, 0.8)
    else:  # comes and goes
        shape, rate = np.exp(-(((t - 48) / 20) ** 2)), rng.uniform(0.9, 1.3)
    waves = [shape * np.sin(rate * t + rng.uniform(0, 6)) for _ in range(3)]
    return 800 * (np.stack(waves) + 0.25 * rng.normal(size=(3, LENGTH)))


class Records(Dataset):
    def __init__(self, count, seed, scale=None, shifted=False):
        rng = np.random.default_rng(seed)
        self.kinds = rng.integers(0, len(KINDS), count)
        self.waves = np.stack([record(kind, rng) for kind in self.kinds]).astype(np.float32)
        self.scale = self.waves.std() if scale is None else scale
        self.shifted = shifted

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        waves = torch.from_numpy(self.waves[index]) / self.scale
        if self.shifted:
            waves = waves.roll(int(torch.randint(-4, 5, ())), dims=-1)
        return waves, int(self.kinds[index])


class Quakes(L.LightningDataModule):
    def setup(self, stage):
        self.train_set = Records(480, seed=1, shifted=True)
        self.val_set = Records(100, seed=2, scale=self.train_set.scale)

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=24, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=32)


class QuakeNet(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        widths = [3, channels, 2 * channels, 2 * channels]
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv1d(a, b, 7, stride=2, padding=3, bias=False), nn.BatchNorm1d(b), nn.ReLU())
            for a, b in itertools.pairwise(widths)
        )
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(2 * channels, len(KINDS))

    def forward(self, waves):
        x = waves
        for stage in self.stages:
            x = stage(x)
        return self.head(self.dropout(x.mean(dim=-1)))


class QuakeModule(L.LightningModule):
    def __init__(self, lr=1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.net = QuakeNet()

    def forward(self, waves):
        return self.net(waves)

    def training_step(self, batch, batch_idx):
        waves, kinds = batch
        loss = F.cross_entropy(self(waves), kinds)
        return loss

    def on_validation_epoch_start(self):
        self.summed, self.right, self.seen = 0.0, 0, 0

    def validation_step(self, batch, batch_idx):
        waves, kinds = batch
        logits = self(waves)
        self.summed += F.cross_entropy(logits, kinds, reduction="sum").item()
        self.right += (logits.argmax(dim=1) == kinds).sum().item()
        self.seen += len(kinds)

    def on_validation_epoch_end(self):
        loss, accuracy = self.summed / self.seen, self.right / self.seen
        print(f"epoch {self.current_epoch}: validation loss {loss:.3f}, accuracy {accuracy:.2f}")

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9, weight_decay=1e-4)
        steps = self.trainer.estimated_stepping_batches
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5 * self.hparams.lr, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main():
    L.seed_everything(31, verbose=False)
    module = QuakeModule()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=4,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, datamodule=Quakes())
    torch.save(module.net.state_dict(), "quakes.pt")


if __name__ == "__main__":
    main()
