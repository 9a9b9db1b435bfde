"""Gestures from an accelerometer: a GRU in a LightningModule with a data module, schedule and validation by epochs."""

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Gestures(L.LightningDataModule):
    def __init__(self, batch_size=16):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage=None):
        g = torch.Generator().manual_seed(61)
        label = torch.randint(0, 3, (288,), generator=g)
        time = torch.linspace(0, 6.28, 20)
        wave = torch.stack([torch.sin(time * (1 + label[:, None])), torch.cos(time * (3 - label[:, None]))], -1)
        signal = wave + 0.5 * torch.randn(288, 20, 2, generator=g)
        self.train_set = TensorDataset(signal[:240], label[:240])
        self.val_set = TensorDataset(signal[240:], label[240:])

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.batch_size)


class GestureModel(L.LightningModule):
    def __init__(self, hidden=24, lr=5e-3):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.GRU(2, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.dropout = nn.Dropout(0.2)
        self.classifier = nn.Linear(hidden, 3)

    def forward(self, signal):
        states, _ = self.encoder(signal)
        last = self.norm(states[:, -1])
        return self.classifier(self.dropout(last))

    def training_step(self, batch, batch_idx):
        signal, label = batch
        loss = F.cross_entropy(self(signal), label)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        signal, label = batch
        logits = self(signal)
        self.log("val/loss", F.cross_entropy(logits, label), batch_size=len(label))
        self.log("val/acc", (logits.argmax(-1) == label).float().mean(), batch_size=len(label), prog_bar=True)

    def configure_optimizers(self):
        opt = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=3)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sch, "interval": "epoch"}}


def main():
    L.seed_everything(61, verbose=False)
    trainer = L.Trainer(
        max_epochs=3,
        accelerator="cpu",
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    model = GestureModel()
    trainer.fit(model, datamodule=Gestures())
    print({name: round(float(value), 3) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
