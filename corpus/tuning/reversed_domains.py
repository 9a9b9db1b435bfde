"""DANN: a classifier for one sensor that shall work on another, whose labels nobody knows.

Features must tell the classes apart and must not tell the sensors apart: gradients of the sensor's head are turned
round on their way into the features.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class Dann(nn.Module):
    def __init__(self, inputs=10, width=32, classes=3):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.classes = nn.Linear(width, classes)
        self.domain = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x, strength=1.0):
        f = self.features(x)
        return self.classes(f), self.domain(Reverse.apply(f, strength)).squeeze(1)


def sensor(n, which, seed):
    """Classes lie around three points; the second sensor is shifted along axes that say nothing of the class."""
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(0, 3, (n,), generator=g)
    centres = 1.5 * torch.eye(3)[label]
    x = torch.randn(n, 10, generator=g) * 0.7
    x[:, :3] += centres
    # on the first sensor a lazy cue goes along with the class; on the second it does not
    cue = label.float() - 1 if which == 0 else torch.randn(n, generator=g) + 1.5
    x[:, 3] += 1.2 * cue
    x[:, 4:6] += 0.8 * which
    return x, label


def accuracy(model, x, label):
    model.eval()
    with torch.no_grad():
        logits, _ = model(x)
    return (logits.argmax(1) == label).float().mean().item()


def train(epochs=8, batch=32):
    torch.manual_seed(40)
    source_x, source_y = sensor(384, 0, seed=41)
    other_x, _ = sensor(384, 1, seed=42)
    tests = {"first": sensor(200, 0, seed=43), "second": sensor(200, 1, seed=44)}
    model = Dann()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    steps = epochs * (len(source_x) // batch)
    step = 0
    for epoch in range(epochs):
        model.train()
        pairs = zip(torch.randperm(384).split(batch), torch.randperm(384).split(batch), strict=True)
        for rows, other_rows in pairs:
            strength = 2 / (1 + math.exp(-10 * step / steps)) - 1  # none at first, as the heads know nothing yet
            logits, from_source = model(source_x[rows], strength)
            _, from_other = model(other_x[other_rows], strength)
            class_loss = F.cross_entropy(logits, source_y[rows])
            domain = torch.cat([from_source, from_other])
            truth = torch.cat([torch.zeros(len(rows)), torch.ones(len(other_rows))])
            domain_loss = F.binary_cross_entropy_with_logits(domain, truth)
            loss = class_loss + 0.5 * domain_loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        scores = ", ".join(f"{name} {accuracy(model, *test):.3f}" for name, test in tests.items())
        print(f"{epoch}: classes {class_loss.item():.3f}, sensors {domain_loss.item():.3f} | {scores}")


if __name__ == "__main__":
    train()
