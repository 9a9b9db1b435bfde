"""Mixup, smoothed labels and class weights at once: soft targets made in the loop."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Beta
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


def clouds(n, seed):
    g = torch.Generator().manual_seed(seed)
    centers = 1.5 * torch.randn(5, 12, generator=torch.Generator().manual_seed(7000))
    y = torch.multinomial(torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05]), n, replacement=True, generator=g)
    return TensorDataset(centers[y] + torch.randn(n, 12, generator=g), y)


def soft(y, smoothing=0.1):
    return F.one_hot(y, 5) * (1 - smoothing) + smoothing / 5


def mix(x, target, alpha=0.4):
    share = Beta(alpha, alpha).sample((len(x), 1))
    partner = torch.randperm(len(x))
    return share * x + (1 - share) * x[partner], share * target + (1 - share) * target[partner]


def main():
    torch.manual_seed(18)
    data = clouds(320, 1)
    counts = torch.bincount(data.tensors[1], minlength=5).float()
    sampler = WeightedRandomSampler((1 / counts.sqrt())[data.tensors[1]], len(data))
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    net = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 5))
    class_weight = (counts.sum() / counts).sqrt()
    class_weight = class_weight / class_weight.mean()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for epoch in range(3):
        net.train()
        for x, y in loader:
            mixed, target = mix(x, soft(y))
            loss = F.cross_entropy(net(mixed), target, weight=class_weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        net.eval()
        test_x, test_y = clouds(120, 2).tensors
        with torch.no_grad():
            print(epoch, loss.item(), (net(test_x).argmax(1) == test_y).float().mean().item())


if __name__ == "__main__":
    main()
