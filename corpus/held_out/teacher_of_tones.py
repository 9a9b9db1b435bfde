"""Distillation: a small network learns to name tones from a larger one that was trained before and is frozen."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NOTES, SAMPLES = 8, 48
TEMPERATURE, SOFT = 3.0, 0.7


def tones(count: int, seed: int) -> TensorDataset:
    """Short recordings of a note with two overtones, of any phase and loudness, in noise."""
    g = torch.Generator().manual_seed(seed)
    note = torch.randint(NOTES, (count,), generator=g)
    pitch = 2.0 * 2 ** (note / 4)
    time = torch.linspace(0, 1, SAMPLES)
    phase = 6.283 * torch.rand(count, 1, generator=g)
    wave = torch.zeros(count, SAMPLES)
    for overtone, loud in ((1, 1.0), (2, 0.5), (3, 0.25)):
        wave += loud * torch.sin(6.283 * overtone * pitch[:, None] * time + overtone * phase)
    wave = wave * (0.7 + 0.6 * torch.rand(count, 1, generator=g))
    return TensorDataset((wave + 0.25 * torch.randn(count, SAMPLES, generator=g)).unsqueeze(1), note)


def listener(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv1d(1, width, 9, padding=4),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(width, 2 * width, 5, padding=2),
        nn.BatchNorm1d(2 * width),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(4),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(8 * width, NOTES),
    )


@torch.no_grad()
def accuracy(network: nn.Module, loader: DataLoader) -> float:
    network.eval()
    right = sum((network(wave).argmax(1) == note).sum().item() for wave, note in loader)
    return right / len(loader.dataset)


def train_teacher(loader: DataLoader, epochs: int) -> nn.Module:
    teacher = listener(24)
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=4e-3, weight_decay=0.01)
    for _ in range(epochs):
        teacher.train()
        for wave, note in loader:
            optimizer.zero_grad()
            F.cross_entropy(teacher(wave), note).backward()
            optimizer.step()
    return teacher.eval().requires_grad_(False)


def distil(teacher: nn.Module, loader: DataLoader, test: DataLoader, epochs: int) -> nn.Module:
    student = listener(6)
    optimizer = torch.optim.AdamW(student.parameters(), lr=8e-3, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=8e-3, total_steps=epochs * len(loader))
    for epoch in range(epochs):
        student.train()
        total = 0.0
        for wave, note in loader:
            with torch.no_grad():
                taught = teacher(wave) / TEMPERATURE
            heard = student(wave)
            soft = F.kl_div(
                F.log_softmax(heard / TEMPERATURE, dim=1),
                F.softmax(taught, dim=1),
                reduction="batchmean",
            )
            hard = F.cross_entropy(heard, note)
            loss = SOFT * TEMPERATURE**2 * soft + (1 - SOFT) * hard
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item() * len(note)
        print(f"epoch {epoch} loss {total / len(loader.dataset):.3f} student {accuracy(student, test):.3f}")
    return student


def main() -> None:
    torch.manual_seed(6)
    loader = DataLoader(tones(512, seed=1), batch_size=32, shuffle=True)
    test = DataLoader(tones(160, seed=2), batch_size=80)
    teacher = train_teacher(loader, epochs=4)
    print(f"teacher {accuracy(teacher, test):.3f}")
    distil(teacher, loader, test, epochs=6)


if __name__ == "__main__":
    main()
