"""Noise levels of streets: the weights of the last epochs are averaged (SWA), with the statistics taken anew."""

import torch
import torch.nn as nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, SWA_START = 8, 5


def streets(count, seed):
    """Traffic, width, trees and so on, and the decibels that come of them."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 6, generator=g)
    level = 1.2 * x[:, 0] - 0.6 * x[:, 1] + 0.5 * x[:, 2] * x[:, 3] - 0.3 * x[:, 4].abs()
    return TensorDataset(x, (level + 0.2 * torch.randn(count, generator=g)).unsqueeze(1))


def make_model():
    return nn.Sequential(
        nn.Linear(6, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        nn.Linear(48, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        nn.Linear(48, 1),
    )


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total, count = 0.0, 0
    for x, y in loader:
        total += nn.functional.mse_loss(model(x), y, reduction="sum").item()
        count += len(y)
    return total / count


def main():
    torch.manual_seed(4)
    train_loader = DataLoader(streets(512, 1), batch_size=32, shuffle=True, drop_last=True)
    test_loader = DataLoader(streets(160, 2), batch_size=64)
    model = make_model()
    averaged = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)
    swa_scheduler = SWALR(optimizer, swa_lr=0.02, anneal_epochs=1)
    criterion = nn.MSELoss()

    for epoch in range(EPOCHS):
        model.train()
        total, count = 0.0, 0
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(y)
            count += len(y)
        if epoch >= SWA_START:
            averaged.update_parameters(model)
            swa_scheduler.step()
        else:
            scheduler.step()
        rate = optimizer.param_groups[0]["lr"]
        print(f"epoch {epoch}: train {total / count:.4f} test {evaluate(model, test_loader):.4f} rate {rate:.4f}")

    update_bn(train_loader, averaged)
    print(f"averaged over {averaged.n_averaged.item()} epochs: test {evaluate(averaged, test_loader):.4f}")
    torch.save(averaged.module.state_dict(), "streets.pt")


if __name__ == "__main__":
    main()
