"""Few labels and many unlabelled signals: a student, and a teacher that is the moving average of the student."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


def signals(count, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, 3, (count,), generator=g)
    t = torch.linspace(0, 6.28, 24)
    return torch.sin((kind[:, None] + 1) * t) + 0.4 * torch.randn(count, 24, generator=g), kind


def network():
    return nn.Sequential(nn.Linear(24, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 3))


@torch.no_grad()
def follow(teacher, student, keep):
    for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
        slow.mul_(keep).add_(fast, alpha=1 - keep)
    for slow, fast in zip(teacher.buffers(), student.buffers(), strict=True):
        slow.copy_(fast)


def main():
    torch.manual_seed(303)
    x, y = signals(32, seed=1)
    unlabelled, _ = signals(512, seed=2)
    x_test, y_test = signals(90, seed=3)
    student = network()
    teacher = copy.deepcopy(student).eval().requires_grad_(False)
    optimizer = torch.optim.Adam(student.parameters(), lr=5e-3)
    for step in range(40):
        some = unlabelled[torch.randint(len(unlabelled), (48,))]
        mine = torch.randint(len(x), (16,))
        logits = student(torch.cat([x[mine], some + 0.2 * torch.randn_like(some)]))
        wanted = teacher(some).softmax(dim=1)
        supervised = F.cross_entropy(logits[:16], y[mine])
        agreement = F.mse_loss(logits[16:].softmax(dim=1), wanted)
        loss = supervised + min(1.0, step / 20) * agreement
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        follow(teacher, student, keep=0.95)
    with torch.no_grad():
        print("right", (teacher(x_test).argmax(1) == y_test).float().mean().item())
    torch.save({"student": student.state_dict(), "teacher": teacher.state_dict()}, "pair.pt")


main()
