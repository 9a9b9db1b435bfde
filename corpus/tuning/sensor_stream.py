"""Faults in an endless stream of vibrations: an iterable data set in two workers, causal convolutions, steps."""

import itertools
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

LENGTH = 32


class Vibrations(IterableDataset):
    """Machines 0, 1, 2, ...; each worker takes its share of them."""

    def __init__(self, machines, seed):
        self.machines, self.seed = machines, seed

    def __iter__(self):
        info = get_worker_info()
        mine = itertools.islice(self.machines, info.id if info else 0, None, info.num_workers if info else 1)
        for machine in mine:
            yield self.record(machine)

    def record(self, machine):
        g = torch.Generator().manual_seed(self.seed * 100_003 + machine)
        faulty = torch.rand((), generator=g) < 0.4
        t = torch.arange(LENGTH)
        wave = torch.sin(2 * math.pi * t / 8 + 6 * torch.rand((), generator=g))
        if faulty:
            wave = wave + 0.8 * torch.sin(2 * math.pi * t / 3)
        return (wave + 0.3 * torch.randn(LENGTH, generator=g)).unsqueeze(0), faulty.long()


class CausalConv(nn.Module):
    def __init__(self, c_in, c_out, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(c_in, c_out, 3, dilation=dilation)
        self.norm = nn.BatchNorm1d(c_out)

    def forward(self, x):
        return F.gelu(self.norm(self.conv(F.pad(x, (self.pad, 0)))))


class FaultNet(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.layers = nn.ModuleList([CausalConv(1, c, 1), CausalConv(c, c, 2), CausalConv(c, c, 4)])
        self.drop = nn.Dropout(0.1)
        self.decide = nn.Linear(c, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        summary = x.mean(dim=2)
        return self.decide(self.drop(summary))


def check(net, loader):
    net.eval()
    ok, n, nll = 0, 0, 0.0
    with torch.inference_mode():
        for wave, fault in loader:
            out = net(wave)
            nll += F.cross_entropy(out, fault, reduction="sum").item()
            ok += (out.argmax(1) == fault).sum().item()
            n += len(fault)
    net.train()
    return nll / n, ok / n


def main():
    torch.manual_seed(2024)
    train_stream = Vibrations(range(512), seed=1)
    loader = DataLoader(train_stream, batch_size=16, num_workers=2)
    holdout = DataLoader(Vibrations(range(5000, 5072), seed=1), batch_size=32)
    net = FaultNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.97)
    net.train()
    for step, (wave, fault) in enumerate(loader):
        out = net(wave)
        loss = F.cross_entropy(out, fault)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
        if step % 10 == 9:
            nll, ok = check(net, holdout)
            print(f"step {step + 1:3d}: train {loss.item():.3f} holdout {nll:.3f} right {ok:.2f}")
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, "faults.pt")


if __name__ == "__main__":
    main()
