"""A trunk from another task stays as it is, statistics and all; its features are computed once and a head learns."""

import torch
import torch.nn.functional as F
from torch import nn


def shapes(n, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(3, (n,), generator=g)
    pictures = 0.5 * torch.randn(n, 1, 12, 12, generator=g)
    for i, k in enumerate(kind.tolist()):
        if k == 0:
            pictures[i, 0, 5:7, 2:10] += 2
        elif k == 1:
            pictures[i, 0, 2:10, 5:7] += 2
        else:
            pictures[i, 0, 4:8, 4:8] += 2
    return pictures, kind


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return F.adaptive_avg_pool2d(x, 3).flatten(1)


def pretrain(trunk):
    """By how many quarter turns was the picture turned?"""
    head = nn.Linear(144, 4)
    opt = torch.optim.SGD([*trunk.parameters(), *head.parameters()], lr=0.05, momentum=0.9)
    pictures, _ = shapes(256, seed=1)
    trunk.train()
    for rows in torch.randperm(256).split(32):
        turns = torch.randint(4, (len(rows),))
        turned = torch.stack([p.rot90(int(t), (1, 2)) for p, t in zip(pictures[rows], turns, strict=False)])
        loss = F.cross_entropy(head(trunk(turned)), turns)
        opt.zero_grad()
        loss.backward()
        opt.step()


def main():
    torch.manual_seed(2)
    trunk = Trunk()
    pretrain(trunk)
    trunk.eval()
    for p in trunk.parameters():
        p.requires_grad_(False)

    pictures, kind = shapes(240, seed=3)
    new_pictures, new_kind = shapes(60, seed=4)
    head = nn.Sequential(nn.Linear(144, 24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 3))
    optimizer = torch.optim.AdamW(head.parameters(), lr=5e-3)
    for epoch in range(4):
        head.train()
        for rows in torch.randperm(240).split(24):
            with torch.no_grad():
                features = trunk(pictures[rows])
            loss = F.cross_entropy(head(features), kind[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        head.eval()
        with torch.no_grad():
            right = (head(trunk(new_pictures)).argmax(1) == new_kind).float().mean().item()
        print(f"{epoch}: {loss.item():.3f} {right:.2%}")
    torch.save({"trunk": trunk.state_dict(), "head": head.state_dict()}, "shapes.pt")


if __name__ == "__main__":
    main()
