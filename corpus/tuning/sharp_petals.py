"""Sharpness-aware minimisation: two backward passes per step, the weights are moved up and back in between."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base = base(self.param_groups, **kwargs)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def ascend(self):
        grads = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["before"] = p.detach().clone()
                p.add_(p.grad * scale)
        self.zero_grad()

    @torch.no_grad()
    def descend(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.copy_(self.state[p]["before"])
        self.base.step()
        self.zero_grad()


def petals(per_class, seed):
    g = torch.Generator().manual_seed(seed)
    xs, ys = [], []
    for label in range(4):
        angle = (label + 0.28 * torch.randn(per_class, generator=g)) * math.pi / 2
        radius = 0.4 + torch.rand(per_class, generator=g)
        twist = angle + radius
        xs.append(torch.stack([radius * twist.cos(), radius * twist.sin()], dim=1))
        ys.append(torch.full((per_class,), label))
    return torch.cat(xs), torch.cat(ys)


class Net(nn.Module):
    def __init__(self, width=64, dropout=0.1):
        super().__init__()
        self.inp = nn.Linear(2, width)
        self.blocks = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(width, 4)

    def forward(self, x):
        x = F.relu(self.inp(x))
        for norm, block in zip(self.norms, self.blocks, strict=True):
            x = x + self.drop(F.relu(block(norm(x))))
        return self.out(x)


def accuracy(model, loader):
    model.eval()
    hits = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    return hits / len(loader.dataset)


def main():
    torch.manual_seed(6)
    train_loader = DataLoader(TensorDataset(*petals(120, seed=1)), batch_size=32, shuffle=True)
    test_loader = DataLoader(TensorDataset(*petals(50, seed=2)), batch_size=64)
    model = Net()
    optimizer = SAM(model.parameters(), torch.optim.SGD, rho=0.05, lr=0.03, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer.base, milestones=[4, 6], gamma=0.2)
    for epoch in range(7):
        model.train()
        for x, y in train_loader:
            first = F.cross_entropy(model(x), y, label_smoothing=0.05)
            first.backward()
            optimizer.ascend()
            F.cross_entropy(model(x), y, label_smoothing=0.05).backward()
            optimizer.descend()
        scheduler.step()
        with torch.no_grad():
            score = accuracy(model, test_loader)
        print(f"epoch {epoch} last loss {first.item():.3f} accuracy {score:.3f}")


if __name__ == "__main__":
    main()
