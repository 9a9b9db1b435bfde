"""Trains a classifier from few labels with a mean teacher and two loaders, one labelled, one not."""

import itertools
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import ConcatDataset, DataLoader, RandomSampler, Subset, TensorDataset

SEED = 50
torch.manual_seed(SEED)
dev = "cuda:0" if torch.cuda.is_available() else "cpu"


class CNN13(nn.Module):
    def __init__(self, classes=10, noise=0.15):
        super().__init__()

        def conv(i, o, k=3, p=1):
            return nn.Sequential(
                nn.utils.parametrizations.weight_norm(nn.Conv2d(i, o, k, padding=p)),
                nn.BatchNorm2d(o),
                nn.LeakyReLU(0.1),
            )

        self.noise = noise
        self.stage = nn.Sequential(
            conv(3, 32),
            conv(32, 32),
            nn.MaxPool2d(2),
            nn.Dropout2d(0.3),
            conv(32, 64),
            conv(64, 64),
            nn.MaxPool2d(2),
            nn.Dropout2d(0.3),
            conv(64, 128, p=0),
            conv(128, 64, 1, 0),
        )
        self.fc = nn.utils.parametrizations.weight_norm(nn.Linear(64, classes))

    def forward(self, x):
        if self.training:
            x = x + self.noise * torch.randn_like(x)
        return self.fc(self.stage(x).mean((2, 3)))


def ramp_up(step, length):
    phase = 1.0 - min(step, length) / length
    return math.exp(-5.0 * phase * phase)


@torch.no_grad()
def update_teacher(student, teacher, alpha, step):
    alpha = min(1 - 1 / (step + 1), alpha)
    for t, s in zip(teacher.parameters(), student.parameters(), strict=True):
        t.mul_(alpha).add_(s.detach(), alpha=1 - alpha)
    for t, s in zip(teacher.buffers(), student.buffers(), strict=True):
        t.copy_(s)


full = TensorDataset(torch.randn(400, 3, 32, 32), torch.randint(0, 10, (400,)))
labelled, unlabelled = Subset(full, range(60)), ConcatDataset([Subset(full, range(60, 400))])
l_loader = DataLoader(labelled, 16, sampler=RandomSampler(labelled, replacement=True, num_samples=96))
u_loader = DataLoader(unlabelled, 32, shuffle=True, drop_last=True, num_workers=1, pin_memory=dev != "cpu")

student, teacher = CNN13().to(dev), CNN13().to(dev)
teacher.load_state_dict(student.state_dict())
for p in teacher.parameters():
    p.requires_grad_(False)
optimizer = torch.optim.SGD(student.parameters(), 0.05, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=10, power=0.9)
clock = time.monotonic()
for step, ((x, y), (u, _)) in enumerate(zip(l_loader, itertools.cycle(u_loader), strict=False)):
    x, y, u = x.to(dev), y.to(dev), u.to(dev)
    both = torch.cat([x, u])
    out = student(both)
    with torch.no_grad():
        soft = teacher(both)
    supervised = F.cross_entropy(out[: len(x)], y)
    consistency = F.mse_loss(out.softmax(1), soft.softmax(1))
    loss = supervised + 100.0 * ramp_up(step, 8) * consistency
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    update_teacher(student, teacher, 0.99, step)
    print(f"{step} class {supervised:.4f} consistency {consistency:.5f} ({time.monotonic() - clock:.1f} s)")
teacher.eval()
with torch.no_grad():
    right = torch.cat(
        [teacher(x.to(dev)).argmax(1).cpu() == y for x, y in DataLoader(Subset(full, range(0, 400, 8)), 25)]
    )
print("accuracy of the teacher", right.float().mean().item())
