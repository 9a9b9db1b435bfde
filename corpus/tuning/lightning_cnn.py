"""Classifies textures with a CNN, trained by Lightning's Trainer."""

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

L.seed_everything(5, verbose=False)


class Textures(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU()
        )
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(8 * 4 * 4, 4)

    def forward(self, x):
        h = self.conv(x).flatten(1)
        return self.fc(self.dropout(h))

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.log("val_loss", F.cross_entropy(logits, y))
        self.log("val_acc", (logits.argmax(1) == y).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=2e-3)
        return optimizer


def textures(n, seed):
    g = torch.Generator().manual_seed(seed)
    kinds = torch.randn(4, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    y = torch.randint(0, 4, (n,), generator=g)
    return TensorDataset(kinds[y] + 0.4 * torch.randn(n, 1, 12, 12, generator=g), y)


train_loader = DataLoader(textures(128, 1), batch_size=16, shuffle=True)
val_loader = DataLoader(textures(32, 2), batch_size=16)
trainer = L.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    num_sanity_val_steps=0,
)
model = Textures()
trainer.fit(model, train_loader, val_loader)
