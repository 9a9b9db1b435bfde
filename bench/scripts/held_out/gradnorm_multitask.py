"""Trains a dense predictor of three tasks, balancing them by GradNorm with several backwards through one graph."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Shared(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.down1 = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.down2 = nn.Sequential(nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU())
        self.last = nn.Conv2d(2 * width, 2 * width, 3, 1, 2, dilation=2)
        self.up = nn.PixelShuffle(2)
        out = 2 * width // 4 + width
        self.heads = nn.ModuleDict(
            {"segment": nn.Conv2d(out, 13, 1), "depth": nn.Conv2d(out, 1, 1), "normal": nn.Conv2d(out, 3, 1)}
        )

    def forward(self, x):
        a = self.down1(x)
        b = self.up(F.relu(self.last(self.down2(a))))
        z = torch.cat([a, b], 1)
        return {name: head(z) for name, head in self.heads.items()}


def task_losses(out, target):
    return torch.stack(
        [
            F.cross_entropy(out["segment"], target["segment"], ignore_index=-1),
            F.l1_loss(out["depth"], target["depth"]),
            1 - F.cosine_similarity(out["normal"], target["normal"], dim=1).mean(),
        ]
    )


def scene(n, size=48):
    x = torch.rand(n, 3, size, size)
    labels = torch.randint(-1, 13, (n, size, size))
    normal = F.normalize(torch.randn(n, 3, size, size), dim=1)
    return x, {"segment": labels, "depth": x.mean(1, keepdim=True), "normal": normal}


def train(steps=6, alpha=1.5):
    torch.manual_seed(3)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Shared().to(device)
    weights = nn.Parameter(torch.ones(3, device=device))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    weight_optimizer = torch.optim.Adam([weights], 2.5e-2)
    first = None
    for step in range(steps):
        x, target = scene(4)
        x = x.to(device)
        target = {k: v.to(device) for k, v in target.items()}
        losses = task_losses(model(x), target)
        if first is None:
            first = losses.detach()
        optimizer.zero_grad()
        (weights.detach() * losses).sum().backward(retain_graph=True)
        norms = []
        for w, loss in zip(weights, losses, strict=True):
            g = torch.autograd.grad(loss, model.last.weight, retain_graph=True)[0]
            norms.append((w * g).norm())
        norms = torch.stack(norms)
        rate = losses.detach() / first
        wanted = (norms.mean() * (rate / rate.mean()) ** alpha).detach()
        weight_optimizer.zero_grad()
        (norms - wanted).abs().sum().backward()
        weight_optimizer.step()
        optimizer.step()
        with torch.no_grad():
            weights.mul_(3 / weights.sum())
        print(step, [round(v, 3) for v in losses.tolist()], [round(v, 3) for v in weights.tolist()])


if __name__ == "__main__":
    train()
