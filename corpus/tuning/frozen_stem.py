"""Transfer: a stem learned on many textures stays frozen, with its statistics, while a new head learns few of them."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def textures(count, angles, frequencies, seed):
    """Gratings of 16 x 16 pixels; the label says which pair of angle and frequency it is."""
    g = torch.Generator().manual_seed(seed)
    kinds = torch.tensor([(a, f) for a in angles for f in frequencies])
    labels = torch.randint(0, len(kinds), (count,), generator=g)
    angle, frequency = kinds[labels].unbind(1)
    phase = torch.rand(count, generator=g) * 2 * math.pi
    y, x = torch.meshgrid(torch.linspace(-1, 1, 16), torch.linspace(-1, 1, 16), indexing="ij")
    along = x * angle.cos()[:, None, None] + y * angle.sin()[:, None, None]
    images = torch.sin(frequency[:, None, None] * along + phase[:, None, None])
    images = images + 0.4 * torch.randn(images.shape, generator=g)
    return TensorDataset(images.unsqueeze(1), labels)


class Stem(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(1, 12, 5, padding=2, bias=False), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(12, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2)),
        )

    def forward(self, images):
        return self.layers(images)


class Classifier(nn.Module):
    def __init__(self, stem, classes, freeze_stem):
        super().__init__()
        self.stem = stem
        self.body = nn.Sequential(nn.Conv2d(24, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(32, classes)
        self.freeze_stem = freeze_stem
        if freeze_stem:
            self.stem.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        if self.freeze_stem:
            self.stem.eval()  # its BatchNorm keeps the statistics of the first task
        return self

    def forward(self, images):
        features = self.stem(images)
        return self.head(self.dropout(self.body(features)))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right, loss, seen = 0, 0.0, 0
    for images, labels in loader:
        logits = model(images)
        loss += F.cross_entropy(logits, labels, reduction="sum").item()
        right += (logits.argmax(1) == labels).sum().item()
        seen += len(labels)
    return loss / seen, right / seen


def fit(model, train_loader, test_loader, epochs, lr, name):
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=lr, weight_decay=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs * len(train_loader))
    for epoch in range(epochs):
        model.train()
        for images, labels in train_loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        test_loss, accuracy = evaluate(model, test_loader)
        print(f"{name} epoch {epoch}: test loss {test_loss:.3f}, accuracy {accuracy:.3f}")


def main():
    torch.manual_seed(33)
    angles = [i * math.pi / 4 for i in range(4)]
    source = textures(960, angles, [4.0, 8.0], seed=1)
    source_test = textures(200, angles, [4.0, 8.0], seed=2)
    first = Classifier(Stem(), classes=8, freeze_stem=False)
    fit(first, DataLoader(source, 32, shuffle=True), DataLoader(source_test, 64), epochs=3, lr=3e-3, name="source")

    tilted = [angle + math.pi / 8 for angle in angles]
    target = textures(320, tilted, [6.0], seed=3)
    target_test = textures(200, tilted, [6.0], seed=4)
    model = Classifier(first.stem, classes=4, freeze_stem=True)
    fit(model, DataLoader(target, 20, shuffle=True), DataLoader(target_test, 64), epochs=5, lr=3e-3, name="target")


if __name__ == "__main__":
    main()
