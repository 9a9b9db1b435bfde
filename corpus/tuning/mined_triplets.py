"""Which whale is it? Embeddings of fluke outlines by a triplet loss, with triplets mined in each batch."""

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

POINTS = 32


class Flukes(Dataset):
    """An outline is a sum of waves that belong to the whale, seen at another size and with noise each time."""

    def __init__(self, whales, photos, seed):
        shape = torch.Generator().manual_seed(100)
        waves = torch.randn(whales, 6, generator=shape)
        g = torch.Generator().manual_seed(seed)
        t = torch.linspace(0, 3.1416, POINTS)
        basis = torch.stack([torch.sin((k + 1) * t) for k in range(6)])
        self.whale = torch.arange(whales).repeat_interleave(photos)
        own = waves[self.whale] + 0.25 * torch.randn(whales * photos, 6, generator=g)
        size = 0.7 + 0.6 * torch.rand(whales * photos, 1, generator=g)
        self.outline = size * (own @ basis) / 2 + 0.2 * torch.randn(whales * photos, POINTS, generator=g)

    def __len__(self):
        return len(self.whale)

    def __getitem__(self, index):
        return self.outline[index], self.whale[index]


class SomeOfSome(Sampler):
    """Batches of `photos` photos of each of `whales` whales."""

    def __init__(self, labels, whales, photos, batches, seed):
        self.where = [torch.nonzero(labels == whale).flatten() for whale in labels.unique()]
        self.whales, self.photos, self.batches = whales, photos, batches
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            chosen = torch.randperm(len(self.where), generator=self.generator)[: self.whales]
            yield [
                index
                for whale in chosen.tolist()
                for index in self.where[whale][
                    torch.randperm(len(self.where[whale]), generator=self.generator)[: self.photos]
                ].tolist()
            ]


def mined_loss(embedding, whale, margin):
    """For each anchor and positive the closest negative that is farther than the positive, or else the farthest."""
    distance = torch.cdist(embedding, embedding)
    same = whale[:, None] == whale[None, :]
    anchor, positive = torch.nonzero(same & ~torch.eye(len(whale), dtype=torch.bool), as_tuple=True)
    near = distance[anchor, positive]
    with torch.no_grad():
        others = distance[anchor]
        farther = (others > near[:, None]) & ~same[anchor]
        closest = others.masked_fill(~farther, torch.inf).argmin(1)
        farthest = others.masked_fill(same[anchor], -torch.inf).argmax(1)
        negative = torch.where(farther.any(1), closest, farthest)
    return torch.relu(near - distance[anchor, negative] + margin).mean()


class Whales(L.LightningModule):
    def __init__(self, lr=2e-3, margin=0.3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            *(nn.Conv1d(1, 16, 5, padding=2), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(2)),
            *(nn.Conv1d(16, 32, 5, padding=2), nn.BatchNorm1d(32), nn.ReLU(), nn.MaxPool1d(2)),
            *(nn.Flatten(), nn.Linear(32 * 8, 16)),
        )
        self.gallery = []

    def forward(self, outline):
        return F.normalize(self.net(outline.unsqueeze(1)), dim=1)

    def training_step(self, batch, _):
        outline, whale = batch
        loss = mined_loss(self(outline), whale, self.hparams.margin)
        self.log("train_loss", loss, on_epoch=True, on_step=False, batch_size=len(whale))
        return loss

    def validation_step(self, batch, _):
        outline, whale = batch
        self.gallery.append((self(outline), whale))

    def on_validation_epoch_end(self):
        embedding, whale = (torch.cat(parts) for parts in zip(*self.gallery, strict=True))
        self.gallery.clear()
        distance = torch.cdist(embedding, embedding).fill_diagonal_(torch.inf)
        recall = (whale[distance.argmin(1)] == whale).float().mean()
        print(f"epoch {self.current_epoch}: recall at 1 {recall.item():.3f}")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


def main():
    L.seed_everything(6)
    photos = Flukes(whales=20, photos=24, seed=1)
    sampler = SomeOfSome(photos.whale, whales=8, photos=4, batches=20, seed=2)
    trainer = L.Trainer(
        max_epochs=5,
        accelerator="cpu",
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    later = DataLoader(Flukes(whales=20, photos=6, seed=3), batch_size=50)
    trainer.fit(Whales(), DataLoader(photos, batch_sampler=sampler), later)


if __name__ == "__main__":
    main()
