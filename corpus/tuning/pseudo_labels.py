"""FixMatch on leaves: a few pictures with labels, many without; sure guesses on weak views teach strong views."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def leaves(n, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.arange(n) % 3
    kind = kind[torch.randperm(n, generator=g)]
    x = 0.5 * torch.randn(n, 1, 10, 10, generator=g)
    for i in range(n):
        shift = int(torch.randint(0, 4, (), generator=g))
        if kind[i] == 0:
            x[i, 0, :, 2 + shift : 4 + shift] += 1.2
        elif kind[i] == 1:
            x[i, 0, 2 + shift : 4 + shift, :] += 1.2
        else:
            x[i, 0, 1 + shift : 5 + shift, 1 + shift : 5 + shift] += 1.2
    return x, kind


def weak(x):
    """A shift by at most one pixel."""
    dy, dx = torch.randint(-1, 2, (2,)).tolist()
    return torch.roll(x, (dy, dx), dims=(2, 3))


def strong(x):
    """Shift, contrast, noise, and a hole."""
    x = weak(x) * torch.empty(len(x), 1, 1, 1).uniform_(0.7, 1.3)
    x = x + 0.3 * torch.randn_like(x)
    top, left = torch.randint(0, 8, (2,)).tolist()
    x[:, :, top : top + 3, left : left + 3] = 0.0
    return x


class LeafNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.norm1, self.norm2 = nn.GroupNorm(4, 16), nn.GroupNorm(4, 32)
        self.fc = nn.Linear(32 * 4, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.relu(self.norm2(self.conv2(x)))
        return self.fc(F.adaptive_max_pool2d(x, 2).flatten(1))


def batches(n, size):
    """Endless rows in a new order after each pass."""
    while True:
        yield from torch.randperm(n).split(size)


def train(model, labelled, unlabelled, test, steps=120, threshold=0.9):
    (x, y), u, (test_x, test_y) = labelled, unlabelled, test
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, nesterov=True, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    few, many = batches(len(x), 16), batches(len(u), 48)
    used = 0.0
    for step in range(1, steps + 1):
        model.train()
        rows, others = next(few), u[next(many)]
        with torch.no_grad():
            sure, guess = model(weak(others)).softmax(dim=1).max(dim=1)
            mask = (sure >= threshold).float()
        logits = model(weak(x[rows]))
        strong_logits = model(strong(others))
        supervised = F.cross_entropy(logits, y[rows])
        unsupervised = (F.cross_entropy(strong_logits, guess, reduction="none") * mask).mean()
        loss = supervised + unsupervised
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        used += mask.mean().item()
        if step % 30 == 0:
            model.eval()
            with torch.no_grad():
                accuracy = (model(test_x).argmax(dim=1) == test_y).float().mean().item()
            print(f"{step}: {supervised.item():.3f} + {unsupervised.item():.3f}, sure {used / 30:.2f}: {accuracy:.2f}")
            used = 0.0


if __name__ == "__main__":
    torch.manual_seed(14)
    train(LeafNet(), leaves(48, seed=1), leaves(480, seed=2)[0], leaves(200, seed=3))
