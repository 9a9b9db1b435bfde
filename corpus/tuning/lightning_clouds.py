"""Kinds of clouds over a camera: a LightningModule with its own optimisation, two batches to an update."""

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

KINDS, SIDE, PARTS = 4, 14, 2


class Sky(Dataset):
    def __init__(self, count, seed, flip=False):
        g = torch.Generator().manual_seed(seed)
        self.kinds = torch.randint(KINDS, (count,), generator=g)
        rough = 0.3 * torch.randn(count, 1, SIDE, SIDE, generator=g)
        waves = torch.arange(SIDE) * (0.5 + 0.45 * self.kinds[:, None])
        phase = 6.28 * torch.rand(count, 1, generator=g)
        bands = torch.sin(waves + phase)[:, None, :, None].expand(-1, -1, -1, SIDE)
        self.pictures = (127 + 60 * (bands + rough)).clamp(0, 255).byte()
        self.flip = flip

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        picture = self.pictures[index].float() / 127.5 - 1
        if self.flip and torch.rand(()) < 0.5:
            picture = picture.flip(-1)
        return picture, self.kinds[index]


class CloudNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.convs = nn.ModuleList(
            [nn.Conv2d(a, b, 3, padding=1) for a, b in ((1, width), (width, width), (width, 2 * width))]
        )
        self.norms = nn.ModuleList([nn.BatchNorm2d(size) for size in (width, width, 2 * width)])
        self.drop = nn.Dropout(0.1)
        self.hidden = nn.Linear(2 * width, 2 * width)
        self.kind = nn.Linear(2 * width, KINDS)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.avg_pool2d(F.leaky_relu(norm(conv(x)), 0.1), 2, ceil_mode=True)
        x = F.leaky_relu(self.hidden(x.mean(dim=(2, 3))), 0.1)
        return self.kind(self.drop(x))


class CloudModule(L.LightningModule):
    def __init__(self, lr=1e-2):
        super().__init__()
        self.automatic_optimization = False
        self.net = CloudNet()
        self.lr = lr
        self.curve = []

    def training_step(self, batch, batch_idx):
        picture, kind = batch
        loss = F.cross_entropy(self.net(picture), kind)
        self.manual_backward(loss / PARTS)
        self.curve.append(loss.item())
        if (batch_idx + 1) % PARTS == 0:
            optimizer = self.optimizers()
            self.clip_gradients(optimizer, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
            optimizer.step()
            optimizer.zero_grad()
            self.lr_schedulers().step()

    def validation_step(self, batch, batch_idx):
        picture, kind = batch
        scores = self.net(picture)
        self.log("loss", F.cross_entropy(scores, kind), batch_size=len(kind))
        self.log("right", (scores.argmax(dim=1) == kind).float().mean(), batch_size=len(kind))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.net.parameters(), lr=self.lr, weight_decay=0.01)
        total = self.trainer.estimated_stepping_batches // PARTS
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def loaders():
    train = DataLoader(Sky(320, seed=1, flip=True), batch_size=16, shuffle=True)
    valid = DataLoader(Sky(70, seed=2), batch_size=32)
    return train, valid


def main():
    L.seed_everything(19, verbose=False)
    module = CloudModule()
    trainer = L.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, *loaders())
    print({name: round(value.item(), 3) for name, value in trainer.callback_metrics.items()}, module.curve[-1])


if __name__ == "__main__":
    main()
