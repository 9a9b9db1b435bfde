"""How many holes has a button? A small residual network on photographs of buttons, trained by a Trainer class."""

import copy
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE, MOST_HOLES = 14, 4
torch.manual_seed(14)


def photograph(rng: np.random.Generator, holes: int) -> np.ndarray:
    """A round button on cloth, seen from above: red, green, blue from 0 to 255."""
    rows, columns = np.mgrid[:SIZE, :SIZE]
    cloth, button = rng.uniform(40, 110, 3), rng.uniform(140, 230, 3)
    middle = SIZE / 2 - 0.5 + rng.uniform(-1, 1, 2)
    picture = np.where((np.hypot(rows - middle[0], columns - middle[1]) < 5.6)[..., None], button, cloth)
    turn = rng.uniform(0, 2 * np.pi)
    for hole in range(holes):
        angle, away = turn + 2 * np.pi * hole / holes, 0.0 if holes == 1 else 3.0
        at = middle + away * np.array([np.sin(angle), np.cos(angle)])
        picture[np.hypot(rows - at[0], columns - at[1]) < 1.3] = 20
    return np.clip(picture + rng.normal(0, 8, picture.shape), 0, 255).astype(np.uint8)


def write_album(path: Path, count: int) -> None:
    rng = np.random.default_rng(8)
    holes = rng.integers(1, MOST_HOLES + 1, count)
    np.savez(path, pictures=np.stack([photograph(rng, h) for h in holes]), holes=holes)


class Album(Dataset):
    def __init__(self, path: Path, rows: np.ndarray, augment: bool) -> None:
        album = np.load(path)
        self.pictures = album["pictures"][rows].transpose(0, 3, 1, 2).astype(np.float32) / 255
        self.labels = torch.from_numpy(album["holes"][rows] - 1)
        self.augment = augment

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int):
        picture = torch.from_numpy(self.pictures[index])
        picture = (picture - 0.45) / 0.25
        if self.augment:
            picture = picture + 0.1 * torch.randn(3, 1, 1)
            if torch.rand(()) < 0.5:
                picture = picture.flip(-1)
        return picture, self.labels[index]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x):
        return x + self.branch(x)


class SmallResNet(nn.Module):
    def __init__(self, widths=(10, 20), blocks: int = 2) -> None:
        super().__init__()
        stages, before = [], 3
        for width in widths:
            stages.append(nn.Conv2d(before, width, 3, stride=2 if before > 3 else 1, padding=1, bias=False))
            stages.append(nn.BatchNorm2d(width))
            stages.extend([Block(width) for _ in range(blocks)])
            before = width
        self.trunk = nn.Sequential(*stages)
        self.head = nn.Linear(before, MOST_HOLES)

    def forward(self, x):
        x = F.relu(self.trunk(x)).mean(dim=(2, 3))
        return self.head(x)


class Trainer:
    """Trains everything first; in the last epoch the trunk is frozen, statistics and all, and the head finishes."""

    def __init__(self, model, train_loader, val_loader, epochs: int, lr: float) -> None:
        self.model, self.train_loader, self.val_loader, self.epochs = model, train_loader, val_loader, epochs
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4, nesterov=True)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=epochs, eta_min=lr / 50)
        self.best_accuracy, self.best_weights = -1.0, None
        self.trunk_frozen = False

    def train_epoch(self) -> float:
        self.model.train()
        if self.trunk_frozen:
            self.model.trunk.eval()
        total = 0.0
        for pictures, labels in self.train_loader:
            logits = self.model(pictures)
            loss = self.criterion(logits, labels)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 2.0)
            self.optimizer.step()
            total += loss.item() * len(labels)
        return total / len(self.train_loader.dataset)

    @torch.no_grad()
    def evaluate(self) -> tuple[float, float]:
        self.model.eval()
        total, right = 0.0, 0
        for pictures, labels in self.val_loader:
            logits = self.model(pictures)
            total += self.criterion(logits, labels).item() * len(labels)
            right += (logits.argmax(dim=1) == labels).sum().item()
        count = len(self.val_loader.dataset)
        return total / count, right / count

    def fit(self) -> None:
        for epoch in range(self.epochs):
            if epoch == self.epochs - 1:
                self.model.trunk.requires_grad_(False)
                self.trunk_frozen = True
            train_loss = self.train_epoch()
            val_loss, accuracy = self.evaluate()
            self.scheduler.step()
            if accuracy > self.best_accuracy:
                self.best_accuracy = accuracy
                self.best_weights = copy.deepcopy(self.model.state_dict())
            print(f"epoch {epoch}: train {train_loss:.3f} val {val_loss:.3f} accuracy {accuracy:.1%}")
        self.model.load_state_dict(self.best_weights)


def main() -> None:
    count, held = 330, 74
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "buttons.npz"
        write_album(path, count)
        rows = np.random.default_rng(2).permutation(count)
        train_set = Album(path, rows[held:], augment=True)
        val_set = Album(path, rows[:held], augment=False)
        train_loader = DataLoader(
            train_set,
            batch_size=32,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
        )
        val_loader = DataLoader(val_set, batch_size=32)
        trainer = Trainer(SmallResNet(), train_loader, val_loader, epochs=5, lr=0.04)
        trainer.fit()
        torch.save(trainer.best_weights, Path(folder) / "buttons.pt")


if __name__ == "__main__":
    main()
