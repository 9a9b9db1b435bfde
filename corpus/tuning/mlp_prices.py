"""House prices from ten features: an MLP, one script from top to bottom."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(7)


class PriceNet(nn.Module):
    def __init__(self, features=10, width=32, depth=2):
        super().__init__()
        self.inp = nn.Linear(features, width)
        self.hidden = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        h = F.relu(self.inp(x))
        for layer in self.hidden:
            h = F.relu(layer(h))
        h = self.drop(h)
        return self.out(h)


def make_houses(n=240):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, 10, generator=generator)
    price = x[:, :3].sum(1, keepdim=True) + 0.5 * x[:, 3:4] * x[:, 4:5]
    return TensorDataset(x, price + 0.1 * torch.randn(n, 1, generator=generator))


houses = make_houses()
train_set, test_set = random_split(houses, [192, 48])
train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
test_loader = DataLoader(test_set, batch_size=48)

model = PriceNet()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
epochs = 4
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)

for epoch in range(epochs):
    model.train()
    running = 0.0
    for x, y in train_loader:
        optimizer.zero_grad()
        pred = model(x)
        loss = ((pred - y) ** 2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        running += loss.item() * len(x)
    scheduler.step()

    model.eval()
    with torch.no_grad():
        total = 0.0
        for x, y in test_loader:
            total += F.mse_loss(model(x), y, reduction="sum").item()
    print(f"epoch {epoch} train {running / len(train_set):.4f} test {total / len(test_set):.4f}")
