"""A frozen encoder of sensor traces and low-rank adapters beside its layers, for a task it was not trained on."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH, RANK, ALPHA = 48, 4, 8.0


def traces(count: int, kind: str, seed: int) -> TensorDataset:
    """Sums of two waves; the first task asks for the pitch, the second for which of the waves is louder."""
    g = torch.Generator().manual_seed(seed)
    pitch = torch.randint(4, (count,), generator=g)
    loud = torch.rand(count, 2, generator=g) + 0.2
    t = torch.linspace(0, 2 * math.pi, 24)
    low = loud[:, :1] * torch.sin(t * (1 + pitch[:, None]) + 6 * torch.rand(count, 1, generator=g))
    high = loud[:, 1:] * torch.sin(9 * t + 6 * torch.rand(count, 1, generator=g))
    x = low + high + 0.05 * torch.randn(count, 24, generator=g)
    return TensorDataset(x, pitch if kind == "pitch" else (loud[:, 0] > loud[:, 1]).long())


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(24, WIDTH)
        self.middle = nn.Linear(WIDTH, WIDTH)
        self.leave = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x):
        x = F.gelu(self.enter(x))
        x = x + F.gelu(self.middle(x))
        x = x + F.gelu(self.leave(self.dropout(x)))
        return self.head(x)


class Adapted(nn.Module):
    """A linear layer that stays as it is, and a product of two thin matrices that learns; the second begins at zero."""

    def __init__(self, layer: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, layer.in_features) / math.sqrt(layer.in_features))
        self.b = nn.Parameter(torch.zeros(layer.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.layer(x) + self.scale * (x @ self.a.T @ self.b.T)


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset) -> float:
    model.eval()
    x, y = data.tensors
    return (model(x).argmax(dim=1) == y).float().mean().item()


def pretrain() -> Encoder:
    model, data = Encoder(), traces(320, "pitch", seed=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    model.train()
    for _ in range(4):
        for x, y in DataLoader(data, batch_size=32, shuffle=True):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"pitch: accuracy {accuracy(model, traces(120, 'pitch', seed=2)):.3f}")
    return model


def main() -> None:
    torch.manual_seed(14)
    model = pretrain()
    model.requires_grad_(False)
    model.enter = Adapted(model.enter, RANK, ALPHA)
    model.middle = Adapted(model.middle, RANK, ALPHA)
    model.leave = Adapted(model.leave, RANK, ALPHA)
    model.head = nn.Linear(WIDTH, 2)
    trained = [p for p in model.parameters() if p.requires_grad]
    total = sum(p.numel() for p in model.parameters())
    print(f"{sum(p.numel() for p in trained)} of {total} weights are trained")
    optimizer = torch.optim.AdamW(trained, lr=6e-3, weight_decay=0.0)
    train, val = traces(320, "loud", seed=3), traces(120, "loud", seed=4)
    for epoch in range(5):
        model.train()
        for x, y in DataLoader(train, batch_size=32, shuffle=True):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"loudness: epoch {epoch + 1} loss {loss.item():.3f} accuracy {accuracy(model, val):.3f}")
    adapters = {name: value for name, value in model.state_dict().items() if not name.endswith(("weight", "bias"))}
    torch.save({"adapters": adapters, "head": model.head.state_dict(), "rank": RANK}, "adapters.pt")


if __name__ == "__main__":
    main()
