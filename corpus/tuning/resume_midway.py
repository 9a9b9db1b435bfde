"""Trains four epochs in two halves that know nothing of each other but a file: weights, optimizer, rate, data order."""

import argparse
import random
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build(args):
    net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, epochs=4, steps_per_epoch=10)
    return net, optimizer, scheduler


def loader(order):
    g = torch.Generator().manual_seed(1)
    x = torch.randn(200, 6, generator=g)
    y = x[:, :3].prod(1, keepdim=True) + x[:, 3:].sum(1, keepdim=True)
    return DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True, generator=order)


def half(args, path, epochs):
    net, optimizer, scheduler = build(args)
    order = torch.Generator().manual_seed(2)
    first = 0
    if path.exists():
        state = torch.load(path, weights_only=False)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        order.set_state(state["order"])
        torch.set_rng_state(state["torch"])
        np.random.set_state(state["numpy"])
        random.setstate(state["random"])
        first = state["epoch"] + 1
    for epoch in range(first, first + epochs):
        net.train()
        for x, y in loader(order):
            loss = nn.functional.huber_loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        print(f"epoch {epoch}: {loss.item():.4f}")
        state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
        state |= {"torch": torch.get_rng_state(), "numpy": np.random.get_state(), "random": random.getstate()}
        torch.save(state | {"order": order.get_state(), "epoch": epoch}, path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=2e-2)
    args = parser.parse_args()
    torch.manual_seed(0)
    path = Path("midway.pt")
    path.unlink(missing_ok=True)
    half(args, path, epochs=2)
    torch.manual_seed(12345)
    half(args, path, epochs=2)


if __name__ == "__main__":
    main()
