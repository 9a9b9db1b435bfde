"""Mixup: pairs of pictures of knots are blended, and so are their losses; the test pictures are left as they are."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES, SIDE = 6, 12


def knots(count: int, seed: int) -> TensorDataset:
    """Closed curves with as many loops as the class says, drawn with a soft pen."""
    rng = np.random.default_rng(seed)
    loops = rng.integers(0, CLASSES, count)
    along = np.linspace(0, 2 * np.pi, 60)
    grid = np.linspace(-1.3, 1.3, SIDE)
    pictures = np.zeros((count, 1, SIDE, SIDE), dtype=np.float32)
    for i, number in enumerate(loops):
        radius = 0.7 + 0.3 * np.cos((number + 1) * along)
        x, y = radius * np.cos(along + rng.normal(0, 0.1)), radius * np.sin(along + rng.normal(0, 0.1))
        near = (grid[:, None, None] - y) ** 2 + (grid[None, :, None] - x) ** 2
        pictures[i, 0] = np.exp(-near.min(axis=2) / 0.02)
    pictures += 0.1 * rng.standard_normal(pictures.shape).astype(np.float32)
    return TensorDataset(torch.from_numpy(pictures - 0.25) / 0.35, torch.from_numpy(loops))


class KnotNet(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classify = nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.Linear(18 * width, CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classify(self.features(x))


def blend(pictures: torch.Tensor, labels: torch.Tensor, alpha: float, rng: np.random.Generator):
    """Each picture mixed with another of its batch; both labels and the share of the first."""
    share = float(rng.beta(alpha, alpha))
    other = torch.randperm(len(pictures))
    mixed = share * pictures + (1 - share) * pictures[other]
    return mixed, labels, labels[other], share


def train(model: nn.Module, loader: DataLoader, optimizer, criterion, rng: np.random.Generator) -> float:
    model.train()
    total = 0.0
    for pictures, labels in loader:
        mixed, first, second, share = blend(pictures, labels, alpha=0.4, rng=rng)
        logits = model(mixed)
        loss = share * criterion(logits, first) + (1 - share) * criterion(logits, second)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
    return total / len(loader.dataset)


@torch.no_grad()
def test(model: nn.Module, loader: DataLoader, criterion) -> tuple[float, float]:
    model.eval()
    total, right = 0.0, 0
    for pictures, labels in loader:
        logits = model(pictures)
        total += criterion(logits, labels).item() * len(labels)
        right += (logits.argmax(dim=1) == labels).sum().item()
    return total / len(loader.dataset), right / len(loader.dataset)


def main() -> None:
    torch.manual_seed(77)
    rng = np.random.default_rng(77)
    train_loader = DataLoader(knots(384, seed=1), batch_size=32, shuffle=True)
    test_loader = DataLoader(knots(120, seed=2), batch_size=60)
    model, criterion = KnotNet(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[3, 5], gamma=0.2)
    for epoch in range(6):
        train_loss = train(model, train_loader, optimizer, criterion, rng)
        test_loss, accuracy = test(model, test_loader, criterion)
        scheduler.step()
        print(f"epoch {epoch} blended {train_loss:.3f} test {test_loss:.3f} accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
