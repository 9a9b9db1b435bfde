"""Few labelled readings, many without labels: the model labels those it is sure of and learns from them too."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

CLASSES = 4
SIZE = 20


def readings(count, generator):
    """Each class is a bend in another place; gain and offset differ from one sensor to the next."""
    label = torch.randint(0, CLASSES, (count,), generator=generator)
    t = torch.linspace(0, 1, SIZE)
    place = 0.2 + 0.2 * label[:, None] + 0.04 * torch.randn(count, 1, generator=generator)
    gain = 0.6 + 0.8 * torch.rand(count, 1, generator=generator)
    signal = gain * torch.exp(-(((t - place) / 0.12) ** 2)) - 0.4
    return 2 * signal + 0.5 * torch.randn(count, SIZE, generator=generator), label


def make_model():
    return nn.Sequential(
        nn.Linear(SIZE, 64), nn.LayerNorm(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 64), nn.ReLU(),
        nn.Dropout(0.2), nn.Linear(64, CLASSES),
    )  # fmt: skip


def train(model, optimizer, x, y, weight, epochs, batch_size=24):
    """Weighted cross-entropy over the samples; returns the mean of the last epoch."""
    model.train()
    for _ in range(epochs):
        total = 0.0
        for rows in torch.randperm(len(x)).split(batch_size):
            each = cross_entropy(model(x[rows]), y[rows], reduction="none")
            loss = (weight[rows] * each).sum() / weight[rows].sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * weight[rows].sum().item()
    return total / weight.sum().item()


@torch.inference_mode()
def probabilities(model, x):
    model.eval()
    return torch.cat([model(part).softmax(dim=1) for part in x.split(256)])


def accuracy(model, x, y):
    return (probabilities(model, x).argmax(dim=1) == y).float().mean().item()


def pseudo_labels(model, x, threshold):
    sure, label = probabilities(model, x).max(dim=1)
    kept = sure > threshold
    return x[kept], label[kept]


def main(rounds=4, threshold=0.9):
    torch.manual_seed(14)
    generator = torch.Generator().manual_seed(15)
    x, y = readings(96, generator)
    x_plain, y_hidden = readings(960, generator)
    x_test, y_test = readings(300, generator)

    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loss = train(model, optimizer, x, y, torch.ones(len(x)), epochs=12)
    print(f"labelled only: loss {loss:.3f}, accuracy {accuracy(model, x_test, y_test):.3f}")

    for turn in range(rounds):
        x_sure, y_sure = pseudo_labels(model, x_plain, threshold)
        x_all, y_all = torch.cat([x, x_sure]), torch.cat([y, y_sure])
        weight = torch.cat([torch.ones(len(x)), torch.full((len(x_sure),), 0.5)])
        loss = train(model, optimizer, x_all, y_all, weight, epochs=2)
        print(
            f"round {turn}: {len(x_sure)} labels of its own, loss {loss:.3f}, "
            f"accuracy {accuracy(model, x_test, y_test):.3f}"
        )


if __name__ == "__main__":
    main()
