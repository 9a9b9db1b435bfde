"""Seeds under a lens: a backbone learned on stripes is frozen, BatchNorm in eval mode, and a new head is trained."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def stripes(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """The source task: which of four directions the stripes have."""
    kind = torch.randint(4, (count,), generator=generator)
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    lanes = torch.stack([x, y, x + y, x - y])
    phase = 6.28 * torch.rand(count, 1, 1, generator=generator)
    pictures = torch.sin(lanes[kind] * 1.2 + phase) + 0.4 * torch.randn(count, 16, 16, generator=generator)
    return pictures.unsqueeze(1), kind


def seeds(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """The target task: seeds that are ribbed along, ribbed across, or smooth, and brighter than the stripes were."""
    kind = torch.randint(3, (count,), generator=generator)
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    shape = torch.exp(-((x - 8) ** 2 + (y - 8) ** 2) / 40)
    ribs = torch.stack([torch.sin(1.2 * x), torch.sin(1.2 * y), torch.zeros(16, 16)])
    pictures = shape * (1.5 + ribs[kind]) + 0.3 * torch.randn(count, 16, 16, generator=generator)
    return pictures.unsqueeze(1), kind


def make_backbone() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2, padding=2, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
    )


class SeedClassifier(nn.Module):
    """A frozen backbone and a head; `train()` leaves the backbone in eval mode, so its running statistics stay."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 3))
        for parameter in self.backbone.parameters():
            parameter.requires_grad = False

    def train(self, mode: bool = True) -> "SeedClassifier":
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(pictures))


def pretrain(path: str, generator: torch.Generator) -> None:
    backbone, head = make_backbone(), nn.Linear(16, 4)
    network = nn.Sequential(backbone, head)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    network.train()
    for step in range(30):
        pictures, kind = stripes(32, generator)
        loss = F.cross_entropy(network(pictures), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"pretraining ends with a loss of {loss.item():.3f}")
    torch.save(backbone.state_dict(), path)


def accuracy(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    right = total = 0
    with torch.no_grad():
        for pictures, kind in loader:
            right += (model(pictures).argmax(dim=1) == kind).sum().item()
            total += len(kind)
    return right / total


def main() -> None:
    torch.manual_seed(31)
    generator = torch.Generator().manual_seed(31)
    pretrain("stripes.pt", generator)
    train_loader = DataLoader(TensorDataset(*seeds(240, generator)), batch_size=24, shuffle=True)
    test_loader = DataLoader(TensorDataset(*seeds(80, generator)), batch_size=24)

    backbone = make_backbone()
    backbone.load_state_dict(torch.load("stripes.pt", weights_only=True))
    model = SeedClassifier(backbone)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, weight_decay=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)
    for epoch in range(5):
        model.train()
        total = 0.0
        for pictures, kind in train_loader:
            loss = F.cross_entropy(model(pictures), kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(kind)
        scheduler.step()
        print(f"epoch {epoch + 1} loss {total / 240:.3f} accuracy {accuracy(model, test_loader):.3f}")
    torch.save(model.state_dict(), "seeds.pt")


if __name__ == "__main__":
    main()
