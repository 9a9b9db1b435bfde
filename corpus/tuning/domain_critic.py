"""Sorting fruit under two lamps: labels under the first only; a critic of the lamp acts through a reversed gradient."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = 4


class Fruit(Dataset):
    def __init__(self, count, lamp, seed):
        g = torch.Generator().manual_seed(seed)
        prototypes = torch.randn(KINDS, 10, generator=torch.Generator().manual_seed(70))
        self.kind = torch.randint(0, KINDS, (count,), generator=g)
        self.colour = prototypes[self.kind] + 0.6 * torch.randn(count, 10, generator=g)
        if lamp == "evening":
            shift = torch.randn(10, generator=torch.Generator().manual_seed(71))
            self.colour = 0.8 * self.colour + 0.7 * shift
        self.lamp = float(lamp == "evening")

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, i):
        return {"colour": self.colour[i], "kind": self.kind[i], "lamp": self.lamp}


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class Sorter(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.kind = nn.Linear(width, KINDS)
        self.critic = nn.Sequential(nn.Linear(width, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, colour, strength=0.0):
        features = self.features(colour)
        return self.kind(features), self.critic(Reverse.apply(features, strength)).squeeze(1)


def accuracy(model, loader):
    model.eval()
    right = count = 0
    with torch.no_grad():
        for batch in loader:
            logits, _ = model(batch["colour"])
            right += (logits.argmax(dim=1) == batch["kind"]).sum().item()
            count += len(logits)
    return right / count


def main(epochs=6):
    torch.manual_seed(7)
    day = DataLoader(Fruit(640, "day", seed=1), batch_size=32, shuffle=True)
    evening = DataLoader(Fruit(640, "evening", seed=2), batch_size=32, shuffle=True)
    tests = {lamp: DataLoader(Fruit(150, lamp, seed=3), batch_size=64) for lamp in ("day", "evening")}
    model = Sorter()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    steps, step = epochs * len(day), 0
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: (1 + 10 * s / steps) ** -0.75)
    for epoch in range(epochs):
        model.train()
        sums = {"kind": 0.0, "lamp": 0.0}
        for labelled, bare in zip(day, evening, strict=True):
            strength = 0.3 * (2 / (1 + math.exp(-10 * step / steps)) - 1)
            colour = torch.cat([labelled["colour"], bare["colour"]])
            lamp = torch.cat([labelled["lamp"], bare["lamp"]]).float()
            logits, lamp_logits = model(colour, strength)
            kind_loss = F.cross_entropy(logits[: len(labelled["kind"])], labelled["kind"])
            lamp_loss = F.binary_cross_entropy_with_logits(lamp_logits, lamp)
            loss = kind_loss + lamp_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            scheduler.step()
            step += 1
            sums["kind"] += kind_loss.item()
            sums["lamp"] += lamp_loss.item()
        report = ", ".join(f"{name} {accuracy(model, loader):.3f}" for name, loader in tests.items())
        print(f"{epoch}: kind {sums['kind'] / len(day):.3f}, lamp {sums['lamp'] / len(day):.3f}; {report}")


if __name__ == "__main__":
    main()
