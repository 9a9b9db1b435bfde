"""Unlabelled target domain: class loss on the source, moments of the features drawn together."""

import itertools
from types import SimpleNamespace

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

args = SimpleNamespace(epochs=6, batch_size=32, lr=3e-3, weight=0.5, seed=90)


def machines(n, seed, shift):
    """Vibration features of three kinds of wear; on the other machine all sensors are offset."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=g)
    centres = torch.tensor([[2.0, 0.0, 0.0, 1.0], [-1.0, 1.7, 0.5, 0.0], [-1.0, -1.7, 0.0, -1.0]])
    x = centres[y] + 0.7 * torch.randn(n, 4, generator=g)
    return (x + shift * torch.tensor([0.8, 0.9, -0.6, 0.4])) / 1.5, y


def coral(a, b):
    """Distance of means and covariances of two sets of features."""
    mean = (a.mean(dim=0) - b.mean(dim=0)).pow(2).mean()
    return mean + (torch.cov(a.T) - torch.cov(b.T)).pow(2).mean()


def build():
    torch.manual_seed(args.seed)
    features = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
    return features, nn.Linear(16, 3)


@torch.no_grad()
def accuracy(features, classifier, x, y):
    features.eval()
    classifier.eval()
    return (classifier(features(x)).argmax(dim=1) == y).float().mean().item()


def train():
    features, classifier = build()
    source = DataLoader(TensorDataset(*machines(480, 1, shift=0.0)), args.batch_size, shuffle=True, drop_last=True)
    unlabelled, _ = machines(300, 2, shift=1.0)
    target = DataLoader(TensorDataset(unlabelled), args.batch_size, shuffle=True, drop_last=True)
    x_test, y_test = machines(200, 3, shift=1.0)
    opt_features = torch.optim.Adam(features.parameters(), lr=args.lr)
    opt_classifier = torch.optim.Adam(classifier.parameters(), lr=3 * args.lr)
    for epoch in range(args.epochs):
        features.train()
        classifier.train()
        # the target set is smaller: it begins again within an epoch
        for (x, y), (u,) in zip(source, itertools.cycle(target), strict=False):
            h_source, h_target = features(x), features(u)
            task = nn.functional.cross_entropy(classifier(h_source), y)
            gap = coral(h_source, h_target)
            opt_features.zero_grad()
            opt_classifier.zero_grad()
            (task + args.weight * gap).backward()
            opt_features.step()
            opt_classifier.step()
        score = accuracy(features, classifier, x_test, y_test)
        print(f"epoch {epoch} task {task.item():.3f} gap {gap.item():.3f} target accuracy {score:.3f}")


if __name__ == "__main__":
    train()
