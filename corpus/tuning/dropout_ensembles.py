"""How sure is the model? Dropout stays on in evaluation on purpose, and many passes make an ensemble."""

import math

import torch
from torch import nn


def yields(count, generator):
    """Harvest from rain, heat and soil; the noise grows with the heat."""
    x = torch.rand(count, 3, generator=generator) * 2 - 1
    mean = torch.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] - 0.5 * x[:, 1]
    noise = 0.1 + 0.15 * (x[:, 1] + 1)
    return x * 1.7, mean + noise * torch.randn(count, generator=generator)


class Harvest(nn.Module):
    def __init__(self, width=64, p=0.1):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(3, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(p),
            nn.Linear(width, width), nn.ReLU(), nn.Dropout(p),
        )  # fmt: skip
        self.mean = nn.Linear(width, 1)
        self.log_variance = nn.Linear(width, 1)

    def forward(self, x):
        features = self.body(x)
        return self.mean(features).squeeze(1), self.log_variance(features).squeeze(1)


def keep_dropout_on(model):
    """Evaluation mode for all but dropout."""
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.train()


def ensemble(model, x, passes=20):
    """Mean and variance over passes with other units dropped each time."""
    keep_dropout_on(model)
    means, variances = [], []
    with torch.no_grad():
        for _ in range(passes):
            mean, log_variance = model(x)
            means.append(mean)
            variances.append(log_variance.exp())
    means = torch.stack(means)
    return means.mean(dim=0), means.var(dim=0) + torch.stack(variances).mean(dim=0)


def log_likelihood(mean, variance, y):
    return -0.5 * ((y - mean).square() / variance + variance.log() + math.log(2 * math.pi))


def main():
    torch.manual_seed(90)
    generator = torch.Generator().manual_seed(91)
    x, y = yields(800, generator)
    x_test, y_test = yields(200, generator)
    model = Harvest()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-3)
    criterion = nn.GaussianNLLLoss()
    epochs, batch_size = 8, 40
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs, eta_min=2e-4)
    for epoch in range(epochs):
        model.train()
        running = 0.0
        for rows in torch.randperm(len(x)).split(batch_size):
            mean, log_variance = model(x[rows])
            loss = criterion(mean, y[rows], log_variance.exp())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            running += loss.item() * len(rows)
        scheduler.step()

        with torch.random.fork_rng():  # what evaluation draws is not taken from training
            mean, variance = ensemble(model, x_test)
        score = log_likelihood(mean, variance, y_test).mean().item()
        inside = ((y_test - mean).abs() < 1.96 * variance.sqrt()).float().mean().item()
        print(f"epoch {epoch}: loss {running / len(x):.3f}, log likelihood {score:.3f}, in the interval {inside:.2f}")


if __name__ == "__main__":
    main()
