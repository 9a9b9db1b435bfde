"""A small network that learns the answers of a larger one, which was trained first."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(18)
centres = torch.randn(6, 20)


def batch(size=64):
    labels = torch.randint(0, 6, (size,))
    return centres[labels] + 1.5 * torch.randn(size, 20), labels


teacher = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 6))
optimizer = torch.optim.Adam(teacher.parameters(), lr=5e-3)
for _ in range(updates // 3):
    x, labels = batch()
    loss = F.cross_entropy(teacher(x), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("teacher", loss.item())
teacher.eval().requires_grad_(False)
student = nn.Sequential(nn.Linear(20, 24), nn.ReLU(), nn.Linear(24, 6))
optimizer = torch.optim.Adam(student.parameters(), lr=5e-3)
for step in range(updates - updates // 3):
    x, labels = batch()
    with torch.no_grad():
        taught = teacher(x)
    scores = student(x)
    soft = F.kl_div(F.log_softmax(scores / 2, 1), F.softmax(taught / 2, 1), reduction="batchmean") * 4
    loss = 0.7 * soft + 0.3 * F.cross_entropy(scores, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item(), soft.item())
