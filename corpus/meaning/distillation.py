"""Distil a wide vibration-fault classifier into one that fits on the sensor board.

The teacher is trained first, its logits and features over the training windows are cached once, and the
student learns from the labels, the softened logits and a projected feature hint.
"""
import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

N_FAULTS = 8


def make_vibrations(count, seed):
    gen = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, N_FAULTS, (count,), generator=gen)
    clock = torch.linspace(0, 1, 64)
    speed = 3.0 + 1.5 * labels.float() + 0.45 * torch.randn(count, generator=gen)
    phase = 2 * math.pi * torch.rand(count, 3, 1, generator=gen)
    freq = speed[:, None, None] * torch.tensor([1.0, 1.5, 2.0])[None, :, None]
    gain = 0.5 + torch.rand(count, 3, 1, generator=gen)
    waves = gain * torch.sin(2 * math.pi * freq * clock + phase)
    waves = waves + 0.7 * torch.randn(count, 3, 64, generator=gen)
    return 4.0 + 2.5 * waves, labels


class VibrationNet(nn.Module):
    def __init__(self, width, drop):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(3, width, 9, padding=4),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(width, 2 * width, 5, padding=2),
            nn.BatchNorm1d(2 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(4),
            nn.Flatten(),
        )
        self.feature_dim = 8 * width
        self.drop = nn.Dropout(drop)
        self.head = nn.Linear(self.feature_dim, N_FAULTS)

    def forward(self, x):
        feats = self.body(x)
        return self.head(self.drop(feats)), feats


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        hits = [(model(bx)[0].argmax(1) == by).float() for bx, by in zip(x.split(256), y.split(256))]
    return torch.cat(hits).mean().item()


def fit_teacher(x, y, args):
    teacher = VibrationNet(args.teacher_width, drop=0.3)
    opt = torch.optim.AdamW(teacher.parameters(), lr=3e-3, weight_decay=1e-2)
    loader = DataLoader(TensorDataset(x, y), batch_size=args.batch, shuffle=True)
    for _ in range(args.teacher_epochs):
        for bx, by in loader:
            opt.zero_grad()
            F.cross_entropy(teacher(bx)[0], by).backward()
            opt.step()
    return teacher


@torch.no_grad()
def cache_teacher(teacher, x):
    """One pass of the finished teacher over the training windows: row i belongs to window i."""
    teacher.eval()
    loader = DataLoader(TensorDataset(x), batch_size=200, shuffle=False)
    outputs = [teacher(bx) for (bx,) in loader]
    return torch.cat([logits for logits, _ in outputs]), torch.cat([feats for _, feats in outputs])


class Distiller:
    def __init__(self, student, teacher_dim, args):
        self.student = student
        self.project = nn.Linear(student.feature_dim, teacher_dim)
        self.args = args
        params = list(student.parameters()) + list(self.project.parameters())
        self.opt = torch.optim.AdamW(params, lr=args.lr, weight_decay=1e-3)

    def loss(self, x, y, teacher_logits, teacher_feats):
        temp = self.args.temperature
        logits, feats = self.student(x)
        hard = F.cross_entropy(logits, y)
        soft_targets = F.softmax(teacher_logits / temp, dim=1)
        log_student = F.log_softmax(logits / temp, dim=1)
        soft = F.kl_div(log_student, soft_targets, reduction="batchmean") * temp**2
        hint = F.mse_loss(self.project(feats), teacher_feats)
        return (1 - self.args.alpha) * hard + self.args.alpha * soft + self.args.hint * hint

    def epoch(self, loader):
        self.student.train()
        total = 0.0
        for batch in loader:
            loss = self.loss(*batch)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
        return total / len(loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--teacher-width", type=int, default=32)
    parser.add_argument("--student-width", type=int, default=8)
    parser.add_argument("--teacher-epochs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--temperature", type=float, default=3.0)
    parser.add_argument("--alpha", type=float, default=0.7)
    parser.add_argument("--hint", type=float, default=0.5)
    args = parser.parse_args()
    torch.manual_seed(11)

    train_x, train_y = make_vibrations(1280, seed=1)
    valid_x, valid_y = make_vibrations(400, seed=2)
    test_x, test_y = make_vibrations(600, seed=3)
    mean = train_x.mean(dim=(0, 2), keepdim=True)
    std = train_x.std(dim=(0, 2), keepdim=True)
    train_x, valid_x, test_x = [(part - mean) / std for part in (train_x, valid_x, test_x)]

    teacher = fit_teacher(train_x, train_y, args)
    teacher_logits, teacher_feats = cache_teacher(teacher, train_x)
    print(f"teacher: valid accuracy {accuracy(teacher, valid_x, valid_y):.3f}")

    student = VibrationNet(args.student_width, drop=0.1)
    distiller = Distiller(student, teacher.feature_dim, args)
    dataset = TensorDataset(train_x, train_y, teacher_logits, teacher_feats)
    loader = DataLoader(dataset, batch_size=args.batch, shuffle=True)
    best, best_state = -1.0, None
    for epoch in range(args.epochs):
        loss = distiller.epoch(loader)
        score = accuracy(student, valid_x, valid_y)
        print(f"epoch {epoch}: loss {loss:.3f} valid accuracy {score:.3f}")
        if score > best:
            best, best_state = score, copy.deepcopy(student.state_dict())
    student.load_state_dict(best_state)
    train_acc, test_acc = accuracy(student, train_x, train_y), accuracy(student, test_x, test_y)
    print(f"student: train accuracy {train_acc:.3f} valid {best:.3f} test {test_acc:.3f}")


if __name__ == "__main__":
    main()
