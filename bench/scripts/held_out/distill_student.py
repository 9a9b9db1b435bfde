"""Distils a frozen teacher into a smaller student with soft targets, hint features and mixed precision."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--temperature", default=4.0, type=float)
parser.add_argument("--alpha", default=0.7, type=float)
parser.add_argument("--beta", default=50.0, type=float)
parser.add_argument("--teacher-width", default=64, type=int)
parser.add_argument("--student-width", default=16, type=int)
parser.add_argument("--batch-size", default=48, type=int)
parser.add_argument("--epochs", default=2, type=int)


def wide_block(i, o, stride):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, stride, 1, bias=False),
        nn.BatchNorm2d(o),
        nn.ReLU(),
        nn.Conv2d(o, o, 3, 1, 1, groups=max(o // 16, 1), bias=False),
        nn.BatchNorm2d(o),
        nn.ReLU(),
    )


class Net(nn.Module):
    def __init__(self, width, classes=20):
        super().__init__()
        self.stem = wide_block(3, width, 1)
        self.mid = wide_block(width, width * 2, 2)
        self.last = wide_block(width * 2, width * 4, 2)
        self.fc = nn.Linear(width * 4, classes)

    def forward(self, x):
        mid = self.mid(self.stem(x))
        last = self.last(mid)
        return self.fc(last.mean((2, 3))), (mid, last)


def attention(f):
    return F.normalize(f.pow(2).mean(1).flatten(1))


def main():
    args = parser.parse_args()
    torch.manual_seed(9)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    teacher = Net(args.teacher_width).to(device)
    student = Net(args.student_width).to(device)
    for p in teacher.parameters():
        p.requires_grad_(False)
    teacher.eval()

    data = TensorDataset(torch.randn(240, 3, 32, 32), torch.randint(0, 20, (240,)))
    loader = DataLoader(data, args.batch_size, shuffle=True, num_workers=0)
    optimizer = torch.optim.SGD(student.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1], gamma=0.1)
    for epoch in range(args.epochs):
        student.train()
        hits = seen = 0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16):
                soft, hints = teacher(x)
            with torch.autocast(device.type, dtype=torch.bfloat16):
                logits, features = student(x)
                ce = F.cross_entropy(logits, y)
                t = args.temperature
                log_p, log_q = F.log_softmax(logits / t, dim=1), F.log_softmax(soft / t, dim=1)
                kd = F.kl_div(log_p, log_q, reduction="batchmean", log_target=True)
                at = sum((attention(f) - attention(h)).pow(2).mean() for f, h in zip(features, hints, strict=True))
                loss = (1 - args.alpha) * ce + args.alpha * t * t * kd + args.beta * at
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hits += (logits.argmax(1) == y).sum().item()
            seen += len(y)
            print(f"[{epoch}] loss {loss.item():.4f} ce {ce.item():.4f} kd {kd.item():.4f} at {at.item():.5f}")
        scheduler.step()
        print(f"epoch {epoch}: train accuracy {hits / seen:.3f} lr {scheduler.get_last_lr()}")


if __name__ == "__main__":
    main()
