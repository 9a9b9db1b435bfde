"""Forecast electricity demand some hours ahead with a Lightning module (dilated convolutions)."""
import logging
import tempfile
import warnings
from dataclasses import dataclass

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore", category=UserWarning)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


@dataclass
class Settings:
    hours: int = 2600
    context: int = 48
    ahead: int = 6
    channels: int = 24
    batch_size: int = 80
    epochs: int = 5
    peak_lr: float = 8e-3
    seed: int = 2024


def simulate_demand(hours, seed):
    """Daily and weekly cycles on a slowly drifting level, with autocorrelated noise, in megawatts."""
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    level = 620 + 0.05 * t + 25 * np.sin(2 * np.pi * t / 1900)
    daily = 90 * np.sin(2 * np.pi * (t - 7) / 24) + 35 * np.sin(4 * np.pi * t / 24)
    weekend = -55.0 * ((t // 24) % 7 >= 5)
    noise = np.zeros(hours)
    for i in range(1, hours):
        noise[i] = 0.8 * noise[i - 1] + rng.normal(0, 11)
    return torch.tensor(level + daily + weekend + noise, dtype=torch.float32)


def make_windows(z, context, ahead):
    starts = torch.arange(len(z) - context - ahead + 1)
    inputs = torch.stack([z[s:s + context] for s in starts])
    targets = z[starts + context + ahead - 1]
    return TensorDataset(inputs, targets)


class DemandData(L.LightningDataModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg

    def setup(self, stage=None):
        series = simulate_demand(self.cfg.hours, self.cfg.seed)
        a, b = int(0.7 * len(series)), int(0.85 * len(series))
        self.mean, self.std = series[:a].mean(), series[:a].std()
        z = (series - self.mean) / self.std
        self.train_set = make_windows(z[:a], self.cfg.context, self.cfg.ahead)
        self.val_set = make_windows(z[a:b], self.cfg.context, self.cfg.ahead)
        self.test_set = make_windows(z[b:], self.cfg.context, self.cfg.ahead)

    def train_dataloader(self):
        return DataLoader(self.train_set, self.cfg.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, 200)

    def test_dataloader(self):
        return DataLoader(self.test_set, 200)


class DilatedBlock(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(channels, channels, 3, dilation=dilation)
        self.mix = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        return x + self.mix(F.gelu(self.conv(F.pad(x, (self.pad, 0)))))


class DemandForecaster(L.LightningModule):
    def __init__(self, channels, context, peak_lr, scale):
        super().__init__()
        self.save_hyperparameters()
        self.lift = nn.Conv1d(1, channels, 1)
        self.blocks = nn.ModuleList([DilatedBlock(channels, d) for d in (1, 2, 4, 8)])
        self.head = nn.Sequential(nn.Linear(channels + context, 64), nn.GELU(), nn.Dropout(0.05), nn.Linear(64, 1))

    def forward(self, x):
        h = self.lift(x.unsqueeze(1))
        for block in self.blocks:
            h = block(h)
        return self.head(torch.cat([h[:, :, -1], x], dim=1)).squeeze(-1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.huber_loss(self(x), y)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def shared_eval(self, batch, name):
        x, y = batch
        mae = (self(x) - y).abs().mean() * self.hparams.scale
        self.log(f"{name}_mae", mae, on_epoch=True, batch_size=len(x))

    def validation_step(self, batch, batch_idx):
        self.shared_eval(batch, "val")

    def test_step(self, batch, batch_idx):
        self.shared_eval(batch, "test")

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.peak_lr, weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=self.hparams.peak_lr,
                                                       total_steps=int(self.trainer.estimated_stepping_batches))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main():
    cfg = Settings()
    L.seed_everything(cfg.seed, verbose=False)
    data = DemandData(cfg)
    data.setup()
    model = DemandForecaster(cfg.channels, cfg.context, cfg.peak_lr, scale=float(data.std))
    with tempfile.TemporaryDirectory() as folder:
        keeper = ModelCheckpoint(dirpath=folder, monitor="val_mae", mode="min", save_top_k=1)
        trainer = L.Trainer(max_epochs=cfg.epochs, accelerator="cpu", devices=1, logger=False, callbacks=[keeper],
                            enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
        trainer.fit(model, datamodule=data)
        train_loss = trainer.callback_metrics["train_loss"].item()
        best = keeper.best_model_score.item()
        test = trainer.test(model, datamodule=data, ckpt_path=keeper.best_model_path, verbose=False,
                            weights_only=False)[0]["test_mae"]
    print(f"final train loss {train_loss:.4f}, best val MAE {best:.1f} MW, test MAE {test:.1f} MW")


if __name__ == "__main__":
    main()
