"""Digits as 8x8 pixels: an MLP with batch norm, in the manner of the quickstart tutorial."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(2)


class Digits(Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        glyphs = torch.randint(0, 2, (10, 1, 8, 8), generator=torch.Generator().manual_seed(99)) * 180
        self.y = torch.randint(0, 10, (count,), generator=g)
        noise = torch.randint(0, 60, (count, 1, 8, 8), generator=g)
        self.x = (glyphs[self.y] + noise).to(torch.uint8)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        pixels = self.x[i].float().div(255)
        return (pixels - 0.5) / 0.5, self.y[i]


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.stack = nn.Sequential(
            nn.Linear(64, 64),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(64, 32),
            nn.ReLU(),
        )
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = self.flatten(x)
        features = self.stack(x)
        logits = self.head(features)
        return logits


def train_loop(dataloader, model, loss_fn, optimizer):
    size = len(dataloader.dataset)
    model.train()
    for batch, (X, y) in enumerate(dataloader):
        pred = model(X)
        loss = loss_fn(pred, y)

        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

        if batch % 5 == 0:
            print(f"loss: {loss.item():>7f}  [{batch * len(X):>5d}/{size:>5d}]")


def test_loop(dataloader, model, loss_fn):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for X, y in dataloader:
            pred = model(X)
            test_loss += loss_fn(pred, y).item() * len(y)
            correct += (pred.argmax(1) == y).type(torch.float).sum().item()
    size = len(dataloader.dataset)
    print(f"accuracy: {100 * correct / size:>0.1f}%, avg loss: {test_loss / size:>8f}")


train_dataloader = DataLoader(Digits(256, 1), batch_size=32, shuffle=True)
test_dataloader = DataLoader(Digits(64, 2), batch_size=32)
model = NeuralNetwork()
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)
for t in range(3):
    print(f"Epoch {t + 1}")
    train_loop(train_dataloader, model, loss_fn, optimizer)
    scheduler.step()
    test_loop(test_dataloader, model, loss_fn)
torch.save(model.state_dict(), "digits.pth")
