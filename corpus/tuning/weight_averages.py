"""Stochastic weight averaging: a cyclic rate, averages from the second half, batch statistics made anew at the end."""

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, SWA_FROM = 4, 2


def moons(n, seed):
    g = torch.Generator().manual_seed(seed)
    angle = torch.rand(n, generator=g) * 3.14
    label = torch.randint(0, 2, (n,), generator=g)
    x = torch.stack([torch.cos(angle) + label * 1.0, torch.sin(angle) * (1 - 2 * label) + label * 0.4], 1)
    return TensorDataset(x + 0.1 * torch.randn(n, 2, generator=g), label)


def net():
    return nn.Sequential(
        nn.Linear(2, 32), nn.BatchNorm1d(32), nn.ReLU(),
        nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2),
    )  # fmt: skip


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    return sum((model(x).argmax(1) == y).sum().item() for x, y in loader) / len(loader.dataset)


if __name__ == "__main__":
    torch.manual_seed(80)
    train_loader = DataLoader(moons(256, 1), batch_size=32, shuffle=True)
    test_loader = DataLoader(moons(100, 2), batch_size=50)
    model = net()
    swa_model = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=SWA_FROM)
    swa_scheduler = SWALR(optimizer, swa_lr=0.05, anneal_epochs=1)
    for epoch in range(EPOCHS):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        if epoch >= SWA_FROM:
            swa_model.update_parameters(model)
            swa_scheduler.step()
        else:
            scheduler.step()
        print(f"epoch {epoch}: {loss.item():.3f} {evaluate(model, test_loader):.2f}")
    update_bn(train_loader, swa_model)
    print(f"averaged {evaluate(swa_model, test_loader):.2f}")
