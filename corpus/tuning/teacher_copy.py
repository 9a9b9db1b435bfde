"""BYOL on spectra: a slowly following copy of the network gives the targets, labels only judge the result."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


def waves(length):
    """Slow waves, of which a ground is made."""
    return torch.cos(torch.outer(torch.arange(4.0), torch.linspace(0, 3, length)))


def spectra(n, seed):
    """Four minerals, each with two peaks at its places, on a ground that waves slowly."""
    g = torch.Generator().manual_seed(seed)
    mineral = torch.randint(0, 4, (n,), generator=g)
    places = torch.tensor([[6.0, 20.0], [10.0, 33.0], [15.0, 28.0], [24.0, 37.0]])[mineral]
    places = places + torch.randn(n, 2, generator=g)
    peaks = 1.5 * torch.exp(-((torch.arange(44.0) - places[..., None]) ** 2) / 6).sum(dim=1)
    ground = torch.randn(n, 4, generator=g) @ waves(44)
    return peaks + ground + 0.1 * torch.randn(n, 44, generator=g), mineral


def view(x):
    """Another look at the same spectra: cut out, scaled, on another ground, with noise."""
    start = int(torch.randint(0, 5, ()))
    x = x[:, start : start + 40]
    ground = torch.randn(len(x), 4) @ waves(40)
    return x * (0.8 + 0.4 * torch.rand(len(x), 1)) + ground + 0.1 * torch.randn_like(x)


def projector(inside, outside):
    return nn.Sequential(nn.Linear(inside, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, outside))


class Byol(nn.Module):
    def __init__(self, momentum=0.9):
        super().__init__()
        encoder = nn.Sequential(nn.Linear(40, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
        self.online = nn.ModuleDict({"encoder": encoder, "projector": projector(32, 16)})
        self.predictor = projector(16, 16)
        self.teacher = copy.deepcopy(self.online).requires_grad_(False)
        self.momentum = momentum

    def forward(self, one, other):
        guess = self.predictor(self.online["projector"](self.online["encoder"](one)))
        with torch.no_grad():
            target = self.teacher["projector"](self.teacher["encoder"](other))
        return 2 - 2 * F.cosine_similarity(guess, target, dim=-1).mean()

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.teacher.parameters(), self.online.parameters(), strict=True):
            slow.mul_(self.momentum).add_(fast, alpha=1 - self.momentum)


@torch.no_grad()
def neighbours(model, bank, labels, x, truth, k=7):
    """Share of spectra whose nearest known ones name the right mineral."""
    model.eval()
    known = F.normalize(model.online["encoder"](bank[:, 2:42]), dim=-1)
    asked = F.normalize(model.online["encoder"](x[:, 2:42]), dim=-1)
    votes = labels[(asked @ known.T).topk(k, dim=1).indices]
    model.train()
    return (votes.mode(dim=1).values == truth).float().mean().item()


def main():
    torch.manual_seed(19)
    x, labels = spectra(512, seed=20)
    test_x, test_labels = spectra(150, seed=21)
    model = Byol()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-3, weight_decay=1e-3)
    print(f"untrained: {neighbours(model, x, labels, test_x, test_labels):.3f}")
    for epoch in range(1, 13):
        model.train()
        total = 0.0
        for rows in torch.randperm(len(x)).split(32):
            one, other = view(x[rows]), view(x[rows])
            loss = (model(one, other) + model(other, one)) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            model.follow()
            total += loss.item() * len(rows)
        if epoch % 3 == 0:
            right = neighbours(model, x, labels, test_x, test_labels)
            print(f"epoch {epoch}: loss {total / len(x):.3f}, neighbours right {right:.3f}")
    torch.save(model.state_dict(), "byol.pt")


if __name__ == "__main__":
    main()
