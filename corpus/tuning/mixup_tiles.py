"""Kinds of tiles, with mixup: each training picture is a blend of two, and so is its label."""

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

KINDS = 5


def tiles(count, seed, side=16):
    """Stripes across, stripes down, stripes aslant, chequers and dots, in two random colours."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, KINDS, count)
    y, x = np.mgrid[:side, :side]
    pictures = np.empty((count, 3, side, side), dtype=np.float32)
    for i in range(count):
        period = rng.integers(4, 7)
        a, b = (x + rng.integers(0, 8)) // (period // 2) % 2, (y + rng.integers(0, 8)) // (period // 2) % 2
        pattern = [b, a, (x + y + rng.integers(0, 8)) // (period // 2) % 2, a ^ b, a & b][kind[i]]
        light, dark = rng.uniform(0.5, 1.0, 3), rng.uniform(0.0, 0.5, 3)
        pictures[i] = np.where(pattern, light[:, None, None], dark[:, None, None])
    pictures += rng.normal(0, 0.08, pictures.shape)
    return TensorDataset(torch.from_numpy((pictures - 0.5) / 0.3).float(), torch.from_numpy(kind))


class TileModel(L.LightningModule):
    def __init__(self, lr=0.02, alpha=0.3, epochs=5):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32 * 4, KINDS)),
        )
        self.rng = np.random.default_rng(29)
        self.right = self.seen = 0

    def forward(self, pictures):
        return self.net(pictures)

    def blend(self, pictures, kind):
        share = float(self.rng.beta(self.hparams.alpha, self.hparams.alpha))
        partner = torch.randperm(len(pictures))
        return share * pictures + (1 - share) * pictures[partner], kind, kind[partner], share

    def training_step(self, batch, _):
        pictures, one, other, share = self.blend(*batch)
        logits = self(pictures)
        loss = share * F.cross_entropy(logits, one) + (1 - share) * F.cross_entropy(logits, other)
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(one))
        return loss

    def on_validation_epoch_start(self):
        self.right = self.seen = 0

    def validation_step(self, batch, _):
        pictures, kind = batch
        self.right += (self(pictures).argmax(dim=1) == kind).sum().item()
        self.seen += len(kind)

    def on_validation_epoch_end(self):
        print(f"epoch {self.current_epoch}: {self.right / self.seen:.3f} of the tiles right")

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9, weight_decay=5e-4)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.hparams.epochs)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


def main():
    L.seed_everything(28)
    model = TileModel()
    trainer = L.Trainer(
        max_epochs=model.hparams.epochs,
        accelerator="cpu",
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(tiles(640, 1), 32, shuffle=True), DataLoader(tiles(150, 2), 64))


if __name__ == "__main__":
    main()
