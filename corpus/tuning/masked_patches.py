"""A masked autoencoder for pictures of overlapping discs: half of the patches are to be guessed."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class Settings:
    pictures: int = 768
    side: int = 16
    patch: int = 4
    width: int = 48
    hidden: float = 0.5
    batch: int = 32
    epochs: int = 6
    lr: float = 3e-3
    seed: int = 73

    @property
    def patches(self) -> int:
        return (self.side // self.patch) ** 2


def pictures(count: int, side: int, seed: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.linspace(-1, 1, side), torch.linspace(-1, 1, side), indexing="ij")
    image = torch.zeros(count, side, side)
    for _ in range(3):
        cx, cy, r, shade = (torch.rand(count, 1, 1, generator=g) for _ in range(4))
        inside = (x - 2 * cx + 1) ** 2 + (y - 2 * cy + 1) ** 2 < (0.3 + 0.5 * r) ** 2
        image = torch.where(inside, 0.3 + 0.7 * shade, image)
    return (image - 0.4) / 0.35 + 0.02 * torch.randn(count, side, side, generator=g)


def patchify(image: Tensor, patch: int) -> Tensor:
    rows = image.unfold(1, patch, patch).unfold(2, patch, patch)
    return rows.reshape(len(image), -1, patch * patch)


def draw_mask(count: int, s: Settings, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """For each picture the places that stay, in some order, and a mask that is true where a patch is hidden."""
    order = torch.rand(count, s.patches, generator=generator).argsort(dim=1)
    keep = order[:, : round(s.patches * (1 - s.hidden))]
    hidden = torch.ones(count, s.patches, dtype=torch.bool).scatter(1, keep, False)
    return keep, hidden


class MaskedAutoencoder(nn.Module):
    def __init__(self, s: Settings) -> None:
        super().__init__()
        self.enter = nn.Linear(s.patch**2, s.width)
        self.place = nn.Parameter(0.02 * torch.randn(s.patches, s.width))
        self.place_again = nn.Parameter(0.02 * torch.randn(s.patches, s.width))
        self.unknown = nn.Parameter(torch.zeros(s.width))
        self.encoder = nn.TransformerEncoder(self.layer(s), 2, enable_nested_tensor=False)
        self.decoder = nn.TransformerEncoder(self.layer(s), 1, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(s.width)
        self.leave = nn.Linear(s.width, s.patch**2)

    @staticmethod
    def layer(s: Settings) -> nn.Module:
        return nn.TransformerEncoderLayer(
            s.width, 4, 2 * s.width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )

    def forward(self, patches: Tensor, keep: Tensor) -> Tensor:
        index = keep.unsqueeze(2)
        x = self.enter(patches.gather(1, index.expand(-1, -1, patches.shape[2]))) + self.place[keep]
        x = self.encoder(x)
        everywhere = self.unknown.expand(len(x), len(self.place), -1)
        full = everywhere.scatter(1, index.expand(-1, -1, x.shape[2]), x)
        return self.leave(self.norm(self.decoder(full + self.place_again)))


def masked_error(guess: Tensor, patches: Tensor, hidden: Tensor) -> Tensor:
    return (guess - patches).square().mean(dim=2)[hidden].mean()


def main(s: Settings) -> None:
    torch.manual_seed(s.seed)
    train, valid = pictures(s.pictures, s.side, seed=1), pictures(128, s.side, seed=2)
    valid_patches = patchify(valid, s.patch)
    valid_keep, valid_hidden = draw_mask(len(valid), s, torch.Generator().manual_seed(3))
    model = MaskedAutoencoder(s)
    optimizer = torch.optim.AdamW(model.parameters(), lr=s.lr, betas=(0.9, 0.95), weight_decay=0.05)
    steps = s.epochs * (s.pictures // s.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, s.lr, total_steps=steps, pct_start=0.15)
    for epoch in range(s.epochs):
        model.train()
        total = 0.0
        for rows in torch.randperm(s.pictures).split(s.batch):
            patches = patchify(train[rows], s.patch)
            keep, hidden = draw_mask(len(rows), s)
            loss = masked_error(model(patches, keep), patches, hidden)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(rows)
        model.eval()
        with torch.no_grad():
            error = masked_error(model(valid_patches, valid_keep), valid_patches, valid_hidden).item()
        print(f"epoch {epoch}: {total / s.pictures:.4f}, held back {error:.4f}")


if __name__ == "__main__":
    main(Settings())
