"""A small student learns shapes from a larger teacher: the teacher is trained, saved and loaded, then asked."""

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

SHAPES, SIDE, HEAT, HARD = 4, 10, 3.0, 0.3


def draw(count, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(SHAPES, (count,), generator=g)
    images = torch.zeros(count, 1, SIDE, SIDE)
    for image, label in zip(images, labels.tolist(), strict=True):
        top, left = torch.randint(0, SIDE - 5, (2,), generator=g).tolist()
        window = image[0, top : top + 5, left : left + 5]
        if label == 0:
            window[:] = 1.0
            window[1:4, 1:4] = 0.0
        elif label == 1:
            window[2], window[:, 2] = 1.0, 1.0
        elif label == 2:
            window[:] = torch.eye(5)
        else:
            window[:] = torch.tril(torch.ones(5, 5))
    images += 0.25 * torch.randn(images.shape, generator=g)
    return TensorDataset((images - 0.12) / 0.4, labels)


class Teacher(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.drop = nn.Dropout(0.2)
        self.shape = nn.Linear(width * (SIDE // 2) ** 2, SHAPES)

    def forward(self, x):
        return self.shape(self.drop(self.features(x)))


class Student(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.look = nn.Conv2d(1, width, 3, stride=2, padding=1)
        self.think = nn.Linear(width * (SIDE // 2) ** 2, 32)
        self.shape = nn.Linear(32, SHAPES)

    def forward(self, x):
        x = torch.relu(self.look(x)).flatten(1)
        return self.shape(torch.relu(self.think(x)))


def score(net, loader):
    net.eval()
    with torch.no_grad():
        hits = torch.cat([net(x).argmax(1) == y for x, y in loader])
    return hits.float().mean().item()


def train_teacher(loader, test, path):
    net = Teacher()
    optimizer = optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(2):
        net.train()
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    torch.save({"model": net.state_dict(), "score": score(net, test)}, path)


def load_teacher(path):
    kept = torch.load(path)
    net = Teacher()
    net.load_state_dict(kept["model"])
    return net.eval(), kept["score"]


def distil_epoch(student, teacher, loader, optimizer):
    student.train()
    total = 0.0
    for x, y in loader:
        view = x + 0.1 * torch.randn_like(x)
        with torch.no_grad():
            opinion = teacher(view)
        answer = student(view)
        soft = F.kl_div(F.log_softmax(answer / HEAT, 1), F.softmax(opinion / HEAT, 1), reduction="batchmean") * HEAT**2
        hard = F.cross_entropy(answer, y)
        loss = HARD * hard + (1 - HARD) * soft
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
    return total / len(loader.dataset)


def main(epochs=4, path=Path("teacher.pt")):
    torch.manual_seed(99)
    train_set, test_set = draw(400, seed=1), draw(90, seed=2)
    train, test = DataLoader(train_set, batch_size=20, shuffle=True), DataLoader(test_set, batch_size=30)
    train_teacher(train, test, path)
    teacher, reached = load_teacher(path)
    print(f"teacher {reached:.3f}")

    student = Student()
    optimizer = optim.AdamW(student.parameters(), lr=4e-3, weight_decay=1e-3)
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5 * (1 + math.cos(math.pi * epoch / epochs)))
    best = 0.0
    for epoch in range(epochs):
        loss = distil_epoch(student, teacher, train, optimizer)
        schedule.step()
        reached = score(student, test)
        if reached > best:
            best = reached
            torch.save(student.state_dict(), "student.pt")
        print(f"{epoch}: loss {loss:.3f}, student {reached:.3f}")


if __name__ == "__main__":
    main()
