"""A large network of seismic traces teaches a small one: softened answers of a teacher that learns nothing more."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

KINDS, LENGTH = 5, 64
WARMTH, SHARE = 3.0, 0.7


def traces(count, generator):
    """Quakes, blasts, trains and others: a decaying wave of its own pitch and decay, in noise."""
    kind = torch.randint(KINDS, (count,), generator=generator)
    time = torch.arange(LENGTH) / LENGTH
    pitch = torch.tensor([6.0, 9.0, 12.0, 9.0, 16.0])[kind] + 0.5 * torch.randn(count, generator=generator)
    decay = torch.tensor([2.0, 6.0, 1.0, 1.0, 4.0])[kind]
    phase = 6 * torch.rand(count, 1, generator=generator)
    wave = torch.sin(2 * torch.pi * pitch[:, None] * time + phase) * torch.exp(-decay[:, None] * time)
    return TensorDataset((wave + 0.4 * torch.randn(count, LENGTH, generator=generator))[:, None], kind)


class Net(nn.Module):
    def __init__(self, width, drop):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, width, 9, stride=2, padding=4),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(4),
            nn.Flatten(),
        )
        self.drop = nn.Dropout(drop)
        self.head = nn.Linear(4 * width, KINDS)

    def forward(self, x):
        return self.head(self.drop(self.features(x)))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = sum((model(x).argmax(dim=1) == kind).sum().item() for x, kind in loader)
    return right / len(loader.dataset)


def train_teacher(loader, held):
    teacher = Net(width=24, drop=0.2)
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=5e-3)
    for _ in range(4):
        teacher.train()
        for x, kind in loader:
            optimizer.zero_grad()
            F.cross_entropy(teacher(x), kind).backward()
            optimizer.step()
    print(f"teacher {accuracy(teacher, held):.1%}")
    return teacher


def distil(teacher, loader, held):
    student = Net(width=8, drop=0.0)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1.5e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5 * len(loader))
    teacher.eval()
    for epoch in range(5):
        student.train()
        total = 0.0
        for x, kind in loader:
            with torch.no_grad():
                told = teacher(x)
            logits = student(x)
            hard = F.cross_entropy(logits, kind)
            soft = F.kl_div(
                F.log_softmax(logits / WARMTH, dim=1), F.softmax(told / WARMTH, dim=1), reduction="batchmean"
            )
            loss = (1 - SHARE) * hard + SHARE * WARMTH**2 * soft
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item() * len(x)
        print(f"epoch {epoch} loss {total / len(loader.dataset):.3f} student {accuracy(student, held):.1%}")
    torch.save(student.state_dict(), "student.pt")


if __name__ == "__main__":
    torch.manual_seed(19)
    generator = torch.Generator().manual_seed(20)
    loader = DataLoader(traces(480, generator), batch_size=40, shuffle=True)
    held = DataLoader(traces(160, generator), batch_size=80)
    distil(train_teacher(loader, held), loader, held)
