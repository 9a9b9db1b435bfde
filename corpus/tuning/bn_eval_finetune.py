"""Fine-tuning with the statistics of batch norm held fixed: the norms are put into evaluation mode at every epoch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv1d(2, 16, 3, padding=1), nn.BatchNorm1d(16)
        self.conv2, self.norm2 = nn.Conv1d(16, 16, 3, padding=1), nn.BatchNorm1d(16)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        x = torch.relu(self.norm1(self.conv1(x)))
        x = torch.relu(self.norm2(self.conv2(x)))
        return self.drop(x.mean(dim=2))


def waves(count, classes, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(classes, (count,), generator=g)
    t = torch.linspace(0, 6.28, 16)
    clean = torch.stack([torch.sin((kind[:, None] + 1) * t), torch.cos((kind[:, None] + 2) * t)], dim=1)
    return TensorDataset(clean + 0.4 * torch.randn(count, 2, 16, generator=g), kind)


def hold_norms(module):
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d):
            part.eval()
            part.requires_grad_(False)


def train(model, data, lr, epochs, fixed):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr, momentum=0.9)
    for _ in range(epochs):
        model.train()
        if fixed:
            hold_norms(model)
        for x, kind in DataLoader(data, batch_size=16, shuffle=True):
            loss = nn.functional.cross_entropy(model(x), kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


torch.manual_seed(306)
backbone = Backbone()
print("first task", train(nn.Sequential(backbone, nn.Linear(16, 4)), waves(192, 4, seed=1), 0.05, 2, fixed=False))
model = nn.Sequential(backbone, nn.Linear(16, 3))
hold_norms(model)
print("second task", train(model, waves(96, 3, seed=2), 0.02, 2, fixed=True))
model.eval()
with torch.no_grad():
    x, kind = waves(60, 3, seed=3).tensors
    print("right", (model(x).argmax(1) == kind).float().mean().item())
