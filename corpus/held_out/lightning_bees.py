"""Swarms of bees from the sensors of hives, with Lightning: a GRU over hours, two heads, one for honey in kilograms."""

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

STATES = ["calm", "robbed", "swarming"]
SENSORS, HOURS = 4, 12


def record_hives(count, generator):
    """Warmth, humidity, weight and hum of a hive over hours; sorted by what the bees did, as the observer filed it."""
    state = torch.arange(count) * len(STATES) // count
    start = torch.randn(count, 1, SENSORS, generator=generator)
    drift = torch.tensor([[0.0, 0.1, 0.2, 0.0], [0.1, 0.0, -0.4, 0.3], [0.4, 0.0, -0.2, 0.5]])[state]
    hours = torch.linspace(0, 1, HOURS).view(1, HOURS, 1)
    noise = 0.25 * torch.randn(count, HOURS, SENSORS, generator=generator)
    sensors = 0.4 * start + 3 * drift.unsqueeze(1) * hours + noise
    honey = 0.8 * sensors[:, -1, 2] - 0.5 * sensors[:, -1, 3] + 0.1 * torch.randn(count, generator=generator)
    return sensors, state, honey


class HiveDays(Dataset):
    def __init__(self, sensors, state, honey, jitter=0.0):
        self.sensors, self.state, self.honey, self.jitter = sensors, state, honey, jitter

    def __len__(self):
        return len(self.state)

    def __getitem__(self, index):
        sensors = self.sensors[index]
        if self.jitter:
            sensors = sensors + self.jitter * torch.randn_like(sensors)
        return {"sensors": sensors, "state": self.state[index], "honey": self.honey[index]}


class HiveData(L.LightningDataModule):
    def __init__(self, batch_size=16):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage=None):
        generator = torch.Generator().manual_seed(4)
        sensors, state, honey = record_hives(294, generator)
        held = torch.zeros(294, dtype=torch.bool)
        held[torch.randperm(294, generator=generator)[:54]] = True
        self.train_set = HiveDays(sensors[~held], state[~held], honey[~held], jitter=0.05)
        self.val_set = HiveDays(sensors[held], state[held], honey[held])

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.batch_size)


class HiveNet(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(SENSORS))
        self.embed = nn.Sequential(nn.Linear(SENSORS, hidden), nn.GELU(), nn.Linear(hidden, hidden))
        self.gru = nn.GRU(hidden, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.shared = nn.Sequential(
            nn.Linear(hidden, hidden),
            nn.GELU(),
            nn.Linear(hidden, hidden),
            nn.GELU(),
            nn.Dropout(0.1),
        )
        self.heads = nn.ModuleDict({"state": nn.Linear(hidden, len(STATES)), "honey": nn.Linear(hidden, 1)})

    def forward(self, sensors):
        x = self.embed(self.gain * sensors)
        hours, _ = self.gru(x)
        day = self.shared(self.norm(hours[:, -1]))
        return F.log_softmax(self.heads["state"](day), dim=1), self.heads["honey"](day).squeeze(-1)


class Beekeeper(L.LightningModule):
    def __init__(self, hidden=24, lr=4e-3, honey_weight=0.5):
        super().__init__()
        self.save_hyperparameters()
        self.net = HiveNet(hidden)

    def forward(self, sensors):
        return self.net(sensors)

    def losses(self, batch):
        log_probs, honey = self(batch["sensors"])
        state_loss = F.nll_loss(log_probs, batch["state"])
        honey_loss = F.mse_loss(honey, batch["honey"])
        return log_probs, state_loss, honey_loss

    def training_step(self, batch, batch_idx):
        _, state_loss, honey_loss = self.losses(batch)
        loss = state_loss + self.hparams.honey_weight * honey_loss
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(batch["state"]))
        return loss

    def validation_step(self, batch, batch_idx):
        log_probs, state_loss, honey_loss = self.losses(batch)
        accuracy = (log_probs.argmax(dim=1) == batch["state"]).float().mean()
        values = {"val_loss": state_loss + self.hparams.honey_weight * honey_loss, "val_acc": accuracy}
        self.log_dict(values, batch_size=len(batch["state"]))

    def on_validation_epoch_end(self):
        shown = {name: round(value.item(), 3) for name, value in self.trainer.callback_metrics.items()}
        print(f"epoch {self.current_epoch + 1} {shown}")

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.trainer.max_epochs)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "epoch"}}


def main():
    L.seed_everything(2024, workers=True)
    trainer = L.Trainer(
        max_epochs=5,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        num_sanity_val_steps=0,
        gradient_clip_val=1.0,
    )
    beekeeper = Beekeeper()
    trainer.fit(beekeeper, datamodule=HiveData())
    trainer.save_checkpoint("bees.ckpt")


if __name__ == "__main__":
    main()
