"""Fine-tunes a network whose batch norms stay as they were: statistics and weights frozen, the rest in training."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def dataset(n, seed, turn):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, 8, 8, generator=g)
    y = ((x[:, 0].mean((1, 2)) + turn * x[:, 1, :4].mean((1, 2))) > 0).long()
    return TensorDataset(x, y)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(),
            nn.Conv2d(12, 12, 3, 2), nn.BatchNorm2d(12), nn.ReLU(),
        )  # fmt: skip
        self.fc = nn.Linear(12, 2)

    def forward(self, x):
        return self.fc(self.layers(x).mean((2, 3)))


def freeze_norms(module):
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.eval()
            part.requires_grad_(False)


def run(model, loader, parameters, epochs, lr, frozen):
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        model.train()
        if frozen:
            freeze_norms(model)
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(y)
        print(f"epoch {epoch}: {total / len(loader.dataset):.3f}")


def main():
    torch.manual_seed(70)
    model = Backbone()
    run(model, DataLoader(dataset(160, 1, 0.2), 16, shuffle=True), model.parameters(), 1, 0.05, frozen=False)
    freeze_norms(model)
    trained = [p for p in model.parameters() if p.requires_grad]
    run(model, DataLoader(dataset(128, 2, 1.0), 16, shuffle=True), trained, 2, 0.05, frozen=True)
    model.eval()
    x, y = dataset(64, 3, 1.0).tensors
    with torch.no_grad():
        print("right", (model(x).argmax(1) == y).float().mean().item())


main()
