import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, features=12, width=32, classes=4):
        super().__init__()
        self.first = nn.Linear(features, width)
        self.norm = nn.BatchNorm1d(width)
        self.second = nn.Linear(width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        h = F.relu(self.norm(self.first(x)))
        h = torch.sigmoid(self.second(h))
        return self.head(h)


rows = torch.randn(96, 12)
labels = torch.randint(0, 4, (96,))
loader = DataLoader(TensorDataset(rows, labels), batch_size=16)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
