"""Vector quantisation: short melodies become a few codes of a learned book, and are played from them again."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader


def melodies(count, seed, length=32):
    """Two motifs out of six, one after the other, each at its own loudness."""
    shapes = torch.randn(6, 4, generator=torch.Generator().manual_seed(99))
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 3.1416, length // 2)
    motifs = torch.stack([sum(s[k] * torch.sin((k + 1) * t) for k in range(4)) for s in shapes])
    chosen = torch.randint(0, 6, (count, 2), generator=g)
    loud = 0.8 + 0.4 * torch.rand(count, 2, 1, generator=g)
    return (loud * motifs[chosen]).flatten(1).div(1.4) + 0.05 * torch.randn(count, length, generator=g)


class Quantiser(nn.Module):
    def __init__(self, codes=32, size=8, commitment=0.25):
        super().__init__()
        self.book = nn.Embedding(codes, size)
        nn.init.uniform_(self.book.weight, -0.5, 0.5)
        self.commitment = commitment

    def forward(self, z):
        with torch.no_grad():
            flat = z.flatten(0, 1)
            codes = torch.cdist(flat, self.book.weight).argmin(dim=1).view(z.shape[:2])
        q = self.book(codes)
        loss = F.mse_loss(q, z.detach()) + self.commitment * F.mse_loss(z, q.detach())
        q = z + (q - z).detach()  # the gradient of the codes goes straight to the encoder
        return q, codes, loss


class Codec(nn.Module):
    def __init__(self, width=32, size=8):
        super().__init__()
        self.encoder = nn.Sequential(
            *(nn.Conv1d(1, width, 4, stride=2, padding=1), nn.ReLU()),
            *(nn.Conv1d(width, width, 4, stride=2, padding=1), nn.ReLU()),
            nn.Conv1d(width, size, 3, padding=1),
        )
        self.quantiser = Quantiser(size=size)
        self.decoder = nn.Sequential(
            *(nn.Conv1d(size, width, 3, padding=1), nn.ReLU()),
            *(nn.ConvTranspose1d(width, width, 4, stride=2, padding=1), nn.ReLU()),
            nn.ConvTranspose1d(width, 1, 4, stride=2, padding=1),
        )

    def forward(self, sound):
        z = self.encoder(sound.unsqueeze(1)).transpose(1, 2)
        q, codes, loss = self.quantiser(z)
        return self.decoder(q.transpose(1, 2)).squeeze(1), codes, loss


def validate(model, loader):
    model.eval()
    error, count, used = 0.0, 0, set()
    with torch.no_grad():
        for sound in loader:
            played, codes, _ = model(sound)
            error += F.mse_loss(played, sound, reduction="sum").item()
            count += sound.numel()
            used |= set(codes.unique().tolist())
    return error / count, len(used)


def run():
    torch.manual_seed(61)
    train_loader = DataLoader(melodies(1200, seed=1), batch_size=40, shuffle=True)
    valid_loader = DataLoader(melodies(200, seed=2), batch_size=64)
    model = Codec()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(6):
        model.train()
        total = torch.zeros(2)
        for sound in train_loader:
            played, _, book_loss = model(sound)
            play_loss = F.mse_loss(played, sound)
            loss = play_loss + book_loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.stack([play_loss, book_loss]).detach()
        play_loss, book_loss = (total / len(train_loader)).tolist()
        error, used = validate(model, valid_loader)
        print(f"{epoch}: play {play_loss:.4f}  book {book_loss:.4f}  held back {error:.4f}  codes in use {used}")


if __name__ == "__main__":
    run()
