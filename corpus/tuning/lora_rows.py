"""A frozen classifier of rows tuned by low-rank additions: the second factor starts at zero, the base never changes."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class LowRank(nn.Module):
    def __init__(self, layer, rank):
        super().__init__()
        self.layer = layer
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / layer.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x):
        return self.layer(x) + (x @ self.down.T) @ self.up.T


def rows(count, seed, turn):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=g)
    return x, (x.roll(turn, dims=1)[:, 0] + x.roll(turn, dims=1)[:, 1] > 0).long()


def fit(net, data, lr, steps):
    x, y = data
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=lr)
    for _ in range(steps):
        index = torch.randint(len(x), (32,))
        loss = F.cross_entropy(net(x[index]), y[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(302)
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    print("base", fit(net, rows(400, 1, turn=0), 1e-2, 30))
    net.requires_grad_(False)
    net[0], net[2] = LowRank(net[0], 2), LowRank(net[2], 2)
    print("tuned", fit(net, rows(400, 2, turn=1), 1e-2, 30))
    x, y = rows(100, 3, turn=1)
    with torch.no_grad():
        print("right", (net(x).argmax(1) == y).float().mean().item())
    for place in (0, 2):
        part = net[place]
        part.layer.weight.data += part.up.data @ part.down.data
        net[place] = part.layer
    torch.save(net.state_dict(), "merged.pt")


if __name__ == "__main__":
    main()
