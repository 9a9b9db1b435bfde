"""A frozen encoder with low-rank adapters and two heads: trained on one question and the other in turn."""

import torch
import torch.nn.functional as F
from torch import nn

INPUTS, WIDTH, CLASSES = 12, 32, 3


class Adapted(nn.Module):
    """A frozen layer and beside it a product of two thin matrices, of which the second begins at zero."""

    def __init__(self, layer, rank=4, scale=2.0):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / layer.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))
        self.scale = scale

    def forward(self, x):
        return self.layer(x) + self.scale * (x @ self.down.t()) @ self.up.t()


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(INPUTS, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x))))


def rows(count, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, INPUTS, generator=g)
    old = (x[:, 0] + x[:, 1] > 0).long()
    kind = torch.bucketize(x[:, 2] * x[:, 3] + x[:, 0], torch.tensor([-0.6, 0.6]))
    amount = x[:, 1] * x[:, 4] + 0.5 * x[:, 5]
    return x, old, kind, amount


def pretrain(encoder, x, y):
    head = nn.Linear(WIDTH, 2)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=3e-3)
    for part in torch.randperm(len(x)).split(32):
        optimizer.zero_grad()
        F.cross_entropy(head(encoder(x[part])), y[part]).backward()
        optimizer.step()


def check(encoder, heads, x, kind, amount):
    with torch.no_grad():
        features = encoder(x)
        right = (heads["kind"](features).argmax(1) == kind).float().mean().item()
        error = F.mse_loss(heads["amount"](features).squeeze(1), amount).item()
    return right, error


def main():
    torch.manual_seed(3)
    x, old, kind, amount = rows(640, seed=1)
    x_held, _, kind_held, amount_held = rows(120, seed=2)
    encoder = Encoder()
    pretrain(encoder, x, old)
    encoder.first, encoder.second = Adapted(encoder.first), Adapted(encoder.second)
    heads = nn.ModuleDict({"kind": nn.Linear(WIDTH, CLASSES), "amount": nn.Linear(WIDTH, 1)})
    trained = [p for p in [*encoder.parameters(), *heads.parameters()] if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=5e-3, weight_decay=0.0)
    for epoch in range(5):
        for number, part in enumerate(torch.randperm(len(x)).split(32)):
            features = encoder(x[part])
            if number % 2 == 0:
                loss = F.cross_entropy(heads["kind"](features), kind[part])
            else:
                loss = F.mse_loss(heads["amount"](features).squeeze(1), amount[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        right, error = check(encoder, heads, x_held, kind_held, amount_held)
        print(f"{epoch}: kinds right {right:.2f}, squared error {error:.3f}")
    adapters = {name: p for name, p in encoder.state_dict().items() if name.endswith(("down", "up"))}
    torch.save({"adapters": adapters, "heads": heads.state_dict()}, "adapters.pt")


if __name__ == "__main__":
    main()
