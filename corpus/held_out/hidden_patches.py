"""Masked autoencoder: three quarters of the patches of a picture are hidden, and painted from those that are left."""

import argparse

import torch
from torch import nn

SIDE, PATCH = 16, 4
PATCHES, PIXELS = (SIDE // PATCH) ** 2, PATCH * PATCH


def fields(count, seed):
    """Hills and furrows: a few waves across the picture, smooth enough to be guessed from parts."""
    g = torch.Generator().manual_seed(seed)
    grid = torch.linspace(0, 3.14, SIDE)
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    pictures = torch.zeros(count, SIDE, SIDE)
    for _ in range(2):
        down, across, phase = torch.randn(3, count, 1, 1, generator=g)
        pictures += torch.sin(down * y + across * x + 2 * phase)
    return pictures


def patches(pictures):
    """(count, side, side) to (count, patches, pixels)"""
    grid = pictures.unfold(1, PATCH, PATCH).unfold(2, PATCH, PATCH)
    return grid.reshape(len(pictures), PATCHES, PIXELS)


class MaskedAutoencoder(nn.Module):
    def __init__(self, width=48, seen=6):
        super().__init__()
        self.seen = seen
        self.enter = nn.Linear(PIXELS, width)
        self.place = nn.Parameter(0.02 * torch.randn(1, PATCHES, width))
        self.encoder = nn.TransformerEncoderLayer(width, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.hidden = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.decoder_place = nn.Parameter(0.02 * torch.randn(1, PATCHES, width))
        self.decoder = nn.TransformerEncoderLayer(width, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.paint = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, PIXELS))

    def forward(self, x, generator=None):
        order = torch.rand(x.shape[:2], generator=generator).argsort(dim=1)
        back = order.argsort(dim=1)
        tokens = self.enter(x) + self.place
        seen = tokens.gather(1, order[:, : self.seen, None].expand(-1, -1, tokens.shape[2]))
        known = self.encoder(seen)
        holes = self.hidden.expand(len(x), PATCHES - self.seen, -1)
        everything = torch.cat([known, holes], dim=1)
        everything = everything.gather(1, back[..., None].expand_as(everything)) + self.decoder_place
        masked = (back >= self.seen).float()
        return self.paint(self.decoder(everything)), masked


def hidden_loss(painted, target, masked):
    """Mean squared error of the hidden patches alone."""
    error = (painted - target).pow(2).mean(dim=-1)
    return (error * masked).sum() / masked.sum()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(23)
    train, test = patches(fields(512, seed=1)), patches(fields(96, seed=2))
    model = MaskedAutoencoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.05)
    steps = args.epochs * len(train) // args.batch
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / 8, 1.02 - s / steps))
    for epoch in range(args.epochs):
        model.train()
        losses = []
        for rows in torch.randperm(len(train)).split(args.batch):
            painted, masked = model(train[rows])
            loss = hidden_loss(painted, train[rows], masked)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            painted, masked = model(test, torch.Generator().manual_seed(9))
            test_loss = hidden_loss(painted, test, masked)
        print(f"epoch {epoch} hidden patches {sum(losses) / len(losses):.3f} test {test_loss.item():.3f}")


if __name__ == "__main__":
    main()
