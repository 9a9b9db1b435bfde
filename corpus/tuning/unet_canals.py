"""Canals in views of a plain, pixel by pixel: a U-Net on an encoder that was taught before, at first frozen."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

SIDE = 24


def views(count, seed):
    """Views with lines across them, where the ground lies low; the canals are where it lies below a depth."""
    g = torch.Generator().manual_seed(seed)
    down, across = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    turn = torch.rand(count, 1, 1, generator=g) * 3.14
    shift = torch.rand(count, 1, 1, generator=g) - 0.5
    away = (down * turn.cos() + across * turn.sin() - shift).abs()
    ground = 1 - torch.exp(-((away / 0.2) ** 2))
    masks = (ground < 0.6).float()
    images = ground + 0.4 * torch.randn(count, SIDE, SIDE, generator=g)
    images = (images - 0.78) / 0.5
    return images.unsqueeze(1), masks.unsqueeze(1)


def in_groups(channels):
    return nn.GroupNorm(2, channels)


def double_conv(inward, outward, norm=nn.BatchNorm2d):
    return nn.Sequential(
        nn.Conv2d(inward, outward, 3, padding=1, bias=False),
        norm(outward),
        nn.ReLU(),
        nn.Conv2d(outward, outward, 3, padding=1, bias=False),
        norm(outward),
        nn.ReLU(),
    )


class Encoder(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first = double_conv(1, width, in_groups)
        self.second = double_conv(width, 2 * width)

    def forward(self, x):
        shallow = checkpoint(self.first, x, use_reentrant=False)
        return shallow, self.second(F.max_pool2d(shallow, 2))


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.encoder = Encoder(width)
        self.middle = double_conv(2 * width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.decoder = double_conv(2 * width, width)
        self.drop = nn.Dropout2d(0.1)
        self.mask = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        shallow, deep = self.encoder(x)
        deep = deep + self.middle(deep)
        x = torch.cat([shallow, self.up(deep)], dim=1)
        return self.mask(self.drop(self.decoder(x)))


def teach_encoder(path):
    """Which way the canal runs, as a task to warm up on."""
    images, masks = views(96, seed=1)
    steep = (masks.amax(2).sum((1, 2)) < masks.amax(3).sum((1, 2))).long()
    encoder = Encoder()
    head = nn.Linear(16, 2)
    taught = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=5e-3)
    for rows in torch.randperm(len(images)).split(16):
        taught.zero_grad()
        F.cross_entropy(head(encoder(images[rows])[1].amax((2, 3))), steep[rows]).backward()
        taught.step()
    torch.save(encoder.state_dict(), path)


def canal_loss(logits, masks):
    """Cross-entropy of the pixels and the overlap that is missing."""
    chance = torch.sigmoid(logits)
    shared = (chance * masks).sum((1, 2, 3))
    dice = 1 - ((2 * shared + 1) / (chance.sum((1, 2, 3)) + masks.sum((1, 2, 3)) + 1)).mean()
    return F.binary_cross_entropy_with_logits(logits, masks) + dice


def overlap(model, loader):
    """Intersection over union of all pixels."""
    model.eval()
    both = either = 0
    with torch.no_grad():
        for images, masks in loader:
            found = torch.sigmoid(model(images)) > 0.5
            both += (found & masks.bool()).sum().item()
            either += (found | masks.bool()).sum().item()
    return both / max(either, 1)


def main(epochs=4, thaw_at=2):
    torch.manual_seed(18)
    teach_encoder("encoder.pt")
    train_loader = DataLoader(TensorDataset(*views(96, seed=2)), batch_size=8, shuffle=True)
    valid_loader = DataLoader(TensorDataset(*views(20, seed=3)), batch_size=8)
    model = UNet()
    model.encoder.load_state_dict(torch.load("encoder.pt", weights_only=True))
    model.encoder.requires_grad_(False)
    optimizer = torch.optim.RMSprop([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    frozen = True
    for epoch in range(epochs):
        if epoch == thaw_at:
            model.encoder.requires_grad_(True)
            optimizer.add_param_group({"params": list(model.encoder.parameters()), "lr": 1e-3})
            frozen = False
        model.train()
        if frozen:
            model.encoder.eval()
        total = 0.0
        for images, masks in train_loader:
            logits = model(images)
            loss = canal_loss(logits, masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(images)
        print(f"epoch {epoch}: {total / len(train_loader.dataset):.3f}, overlap {overlap(model, valid_loader):.3f}")


if __name__ == "__main__":
    main()
