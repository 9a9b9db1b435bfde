"""Linear probe: an encoder learns to remove noise from sensor curves, is frozen, and a small head reads it."""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LENGTH = 32


def curves(count, seed):
    """Sine, saw tooth or step, of any phase and height, with noise."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, 3, (count,), generator=g)
    phase = torch.rand(count, 1, generator=g)
    height = 0.7 + torch.rand(count, 1, generator=g)
    t = (torch.linspace(0, 2, LENGTH) + phase) % 1
    shapes = torch.stack([torch.sin(2 * math.pi * t), 2 * t - 1, torch.sign(t - 0.5)], dim=1)
    clean = height * shapes[torch.arange(count), kind]
    return (clean + 0.1 * torch.randn(count, LENGTH, generator=g)).unsqueeze(1), kind


class Encoder(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, width, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
        )

    def forward(self, x):
        return self.body(x)


class Probe(nn.Module):
    """The encoder stands still: no gradients, and its batch norms keep their statistics whatever the mode."""

    def __init__(self, encoder, classes=3, width=24):
        super().__init__()
        self.encoder = encoder.requires_grad_(False)
        self.head = nn.Sequential(nn.Linear(2 * width, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, classes))

    def train(self, mode=True):
        super().train(mode)
        self.encoder.eval()
        return self

    def forward(self, x):
        maps = self.encoder(x)
        return self.head(torch.cat([maps.mean(dim=2), maps.amax(dim=2)], dim=1))


def pretrain(encoder, epochs=3):
    decoder = nn.Sequential(
        nn.ConvTranspose1d(24, 12, 4, stride=2, padding=1), nn.ReLU(), nn.ConvTranspose1d(12, 1, 4, stride=2, padding=1)
    )
    x, _ = curves(512, seed=1)
    loader = DataLoader(TensorDataset(x), batch_size=32, shuffle=True)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=3e-3)
    encoder.train()
    for epoch in range(epochs):
        total = 0.0
        for (batch,) in loader:
            noisy = batch + 0.4 * torch.randn_like(batch)
            loss = nn.functional.mse_loss(decoder(encoder(noisy)), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        print(f"denoising {epoch}: {total / len(x):.4f}")


def probe(encoder, epochs=6):
    x, kind = curves(192, seed=2)
    loader = DataLoader(TensorDataset(x, kind), batch_size=32, shuffle=True)
    test_loader = DataLoader(TensorDataset(*curves(150, seed=3)), batch_size=64)
    model = Probe(encoder)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.01)
    for epoch in range(epochs):
        model.train()
        for batch, label in loader:
            logits = model(batch)
            loss = nn.functional.cross_entropy(logits, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        right = 0
        with torch.no_grad():
            for batch, label in test_loader:
                right += (model(batch).argmax(dim=1) == label).sum().item()
        print(f"probe {epoch}: accuracy {right / len(test_loader.dataset):.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    encoder = Encoder()
    pretrain(encoder)
    probe(encoder)
