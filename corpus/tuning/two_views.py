"""Representations without labels: two views of each picture, NT-Xent, then a linear probe on frozen features."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def shots(n, seed):
    g = torch.Generator().manual_seed(seed)
    objects = torch.randn(5, 1, 10, 10, generator=torch.Generator().manual_seed(4242))
    which = torch.randint(5, (n,), generator=g)
    return objects[which] + 0.5 * torch.randn(n, 1, 10, 10, generator=g), which


def view(x):
    """A random crop put back to size, with noise."""
    top, left = int(torch.randint(0, 3, ())), int(torch.randint(0, 3, ()))
    crop = x[..., top : top + 8, left : left + 8]
    return F.interpolate(crop, size=10, mode="bilinear") + 0.1 * torch.randn_like(x)


class Encoder(nn.Module):
    def __init__(self, features=24):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU())
        self.linear = nn.Linear(16 * 4, features)

    def forward(self, x):
        return self.linear(self.trunk(x).flatten(1))


class Projector(nn.Module):
    def __init__(self, features=24, out=16):
        super().__init__()
        self.a, self.b = nn.Linear(features, features), nn.Linear(features, out)

    def forward(self, h):
        return F.normalize(self.b(F.relu(self.a(h))), dim=1)


def nt_xent(z1, z2, temperature=0.3):
    z = torch.cat([z1, z2])
    similar = z @ z.T / temperature
    similar = similar.masked_fill(torch.eye(len(z), dtype=torch.bool), float("-inf"))
    partner = torch.arange(len(z)).roll(len(z1))
    return F.cross_entropy(similar, partner)


def pretrain(encoder, projector, x, steps=30, batch=32):
    params = [*encoder.parameters(), *projector.parameters()]
    opt = torch.optim.AdamW(params, lr=3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=steps)
    encoder.train()
    for step in range(steps):
        chosen = x[torch.randperm(len(x))[:batch]]
        z1 = projector(encoder(view(chosen)))
        z2 = projector(encoder(view(chosen)))
        loss = nt_xent(z1, z2)
        opt.zero_grad()
        loss.backward()
        opt.step()
        schedule.step()
        if step % 10 == 9:
            print(f"contrastive {step + 1}: {loss.item():.3f}")


def probe(encoder, x, y, test_x, test_y, epochs=30):
    encoder.eval()
    encoder.requires_grad_(False)
    with torch.no_grad():
        features, test_features = encoder(x), encoder(test_x)
    head = nn.Linear(features.shape[1], 5)
    opt = torch.optim.Adam(head.parameters(), lr=5e-2)
    for _ in range(epochs):
        rows = torch.randperm(len(y))[:64]
        loss = F.cross_entropy(head(features[rows]), y[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        return (head(test_features).argmax(1) == test_y).float().mean().item()


def main():
    torch.manual_seed(16)
    x, y = shots(300, 1)
    test_x, test_y = shots(80, 2)
    encoder, projector = Encoder(), Projector()
    pretrain(encoder, projector, x)
    print(f"probe: {probe(encoder, x, y, test_x, test_y):.3f}")


if __name__ == "__main__":
    main()
