"""Fruit by colour and shape with Lightning: a DataModule, a frozen base from an earlier task, metrics added by hand."""

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

FRUITS = ("apple", "banana", "lime", "plum", "orange")
COLOURS = np.array([[200, 40, 40], [230, 210, 60], [90, 200, 70], [110, 50, 140], [240, 140, 30]])
SIDE = 12


class Basket(Dataset):
    def __init__(self, count, seed, mirror=False):
        rng = np.random.default_rng(seed)
        self.mirror = mirror
        self.fruit = rng.integers(0, len(FRUITS), count)
        y, x = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
        self.photos = np.empty((count, SIDE, SIDE, 3), dtype=np.uint8)
        for i, fruit in enumerate(self.fruit):
            long = 2.2 if fruit in (1, 3) else 1.0
            inside = (x / long) ** 2 + (y * long**0.5) ** 2 < rng.uniform(9, 16)
            photo = np.where(inside[..., None], COLOURS[fruit] + rng.normal(0, 35, 3), 120.0)
            self.photos[i] = np.clip(photo + rng.normal(0, 30, photo.shape), 0, 255)

    def __len__(self):
        return len(self.fruit)

    def __getitem__(self, index):
        photo = torch.from_numpy(self.photos[index]).permute(2, 0, 1).float() / 255
        if self.mirror and torch.rand(()) < 0.5:
            photo = photo.flip(2)
        return (photo - 0.5) / 0.25, torch.tensor(self.fruit[index])


class FruitData(L.LightningDataModule):
    def __init__(self, batch=24):
        super().__init__()
        self.batch = batch

    def setup(self, stage=None):
        self.known = Basket(360, seed=1, mirror=True)
        self.unknown = Basket(80, seed=2)

    def train_dataloader(self):
        return DataLoader(self.known, batch_size=self.batch, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.unknown, batch_size=self.batch)


def base_network(channels):
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


class FruitModule(L.LightningModule):
    def __init__(self, channels=12, lr=0.02):
        super().__init__()
        self.save_hyperparameters()
        self.base = base_network(channels)
        self.base.requires_grad_(False)
        self.conv = nn.Conv2d(channels, 2 * channels, 3, padding=1)
        self.drop = nn.Dropout(0.2)
        self.fruit = nn.Linear(2 * channels, len(FRUITS))
        self.right = self.seen = 0

    def forward(self, photo):
        x = self.base(photo)
        x = F.relu(self.conv(x)).mean(dim=(2, 3))
        return self.fruit(self.drop(x))

    def on_train_epoch_start(self):
        self.base.eval()

    def training_step(self, batch, index):
        photo, fruit = batch
        logits = self(photo)
        loss = F.cross_entropy(logits, fruit)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_validation_epoch_start(self):
        self.right = self.seen = 0

    def validation_step(self, batch, index):
        photo, fruit = batch
        self.right += (self(photo).argmax(dim=1) == fruit).sum().item()
        self.seen += len(fruit)

    def on_validation_epoch_end(self):
        self.log("accuracy", self.right / self.seen)

    def configure_optimizers(self):
        trained = [p for p in self.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(trained, lr=self.hparams.lr, momentum=0.9, weight_decay=1e-4)
        total = int(self.trainer.estimated_stepping_batches)
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3 * self.hparams.lr, total_steps=total)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": cycle, "interval": "step"}}


def warm_base(channels=12):
    """The base as it was left by an older task: which of the three colours is strongest."""
    base, head = base_network(channels), nn.Linear(channels, 3)
    optimizer = torch.optim.Adam([*base.parameters(), *head.parameters()], lr=1e-2)
    for _ in range(15):
        tint = torch.randint(3, (32,))
        photo = 0.7 * torch.randn(32, 3, SIDE, SIDE) + F.one_hot(tint, 3)[:, :, None, None]
        loss = F.cross_entropy(head(base(photo).mean(dim=(2, 3))), tint)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return base.state_dict()


if __name__ == "__main__":
    L.seed_everything(19, verbose=False)
    module = FruitModule()
    module.base.load_state_dict(warm_base())
    trainer = L.Trainer(
        max_epochs=4,
        accelerator="cpu",
        logger=False,
        gradient_clip_val=1.0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, datamodule=FruitData())
    print({name: round(value.item(), 3) for name, value in trainer.callback_metrics.items()})
    torch.save(module.state_dict(), "fruit.pt")
