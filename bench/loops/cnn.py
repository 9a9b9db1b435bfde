"""A convolutional network with batch norm and dropout on made-up pictures."""

import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(1)
labels = torch.randint(0, 10, (1280,))
pictures = torch.randn(1280, 1, 28, 28) + torch.randn(10, 1, 28, 28)[labels]
training = DataLoader(TensorDataset(pictures[:1024], labels[:1024]), batch_size=32, shuffle=True, drop_last=True)
testing = DataLoader(TensorDataset(pictures[1024:], labels[1024:]), batch_size=128)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.25), nn.Linear(32 * 49, 10))

    def forward(self, x):
        return self.head(self.body(x))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
done = 0
while done < updates:
    model.train()
    for x, y in training:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done % 10 == 0:
            print(done, loss.item())
        if done == updates:
            break
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in testing:
            right += (model(x).argmax(1) == y).sum().item()
    print("right", right)
