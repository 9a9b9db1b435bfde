"""Strength of concrete with error bars: weights are distributions (Bayes by backprop), drawn anew in each forward."""

import argparse
import logging

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

log = logging.getLogger("concrete")


class NoisyLinear(nn.Module):
    """Means and deviations of weights; in training one draw for each batch, in evaluation the means."""

    def __init__(self, inside, outside, start=-3.0):
        super().__init__()
        self.mean = nn.Parameter(torch.empty(outside, inside))
        self.bias = nn.Parameter(torch.zeros(outside))
        self.rho = nn.Parameter(torch.full((outside, inside), start))
        nn.init.kaiming_uniform_(self.mean, a=5**0.5)

    def forward(self, x):
        weight = self.mean
        if self.training:
            weight = weight + F.softplus(self.rho) * torch.randn_like(weight)
        return F.linear(x, weight, self.bias)

    def kl(self, prior=0.3):
        """How far the weights are from a normal distribution around zero, in nats."""
        sigma = F.softplus(self.rho)
        return (np.log(prior) - sigma.log() + (sigma**2 + self.mean**2) / (2 * prior**2) - 0.5).sum()


class Concrete(nn.Module):
    def __init__(self, inputs, width=16):
        super().__init__()
        self.first, self.second, self.last = (
            NoisyLinear(inputs, width),
            NoisyLinear(width, width),
            NoisyLinear(width, 1),
        )
        self.log_noise = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x))))).squeeze(-1)

    def nll(self, guess, y):
        return (0.5 * ((guess - y) / self.log_noise.exp()) ** 2 + self.log_noise).mean()

    def kl(self):
        return self.first.kl() + self.second.kl() + self.last.kl()


def mixtures(n, seed):
    rng = np.random.default_rng(seed)
    cement, water, age = rng.uniform(150, 500, n), rng.uniform(120, 240, n), rng.uniform(1, 90, n)
    strength = 18 * (cement / water) * np.log1p(age) / np.log(29) + rng.normal(0, 2, n)
    return np.stack([cement, water, age], axis=1), strength


def run(args):
    torch.manual_seed(args.seed)
    x, y = mixtures(512, seed=1)
    test_x, test_y = mixtures(100, seed=2)
    mean, std, y_mean, y_std = x.mean(0), x.std(0), y.mean(), y.std()

    def tensors(a, b):
        return torch.tensor((a - mean) / std).float(), torch.tensor((b - y_mean) / y_std).float()

    train_x, train_y = tensors(x, y)
    test_x, test_y = tensors(test_x, test_y)
    model = Concrete(x.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        model.train()
        for rows in torch.randperm(len(train_x)).split(args.batch):
            optimizer.zero_grad()
            fit = model.nll(model(train_x[rows]), train_y[rows])
            loss = fit + model.kl() / len(train_x)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            off = (model(test_x) - test_y).abs().mean().item() * y_std
        log.info("epoch %d: fit %.3f, kl %.1f, off by %.2f MPa", epoch, fit.item(), model.kl().item(), off)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=80)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    run(parser.parse_args([]))
