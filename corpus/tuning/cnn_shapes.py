"""Small pictures of shapes, in the manner of the classic MNIST example: functions train and test, called from main."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(1)


class Shapes(Dataset):
    """Bars, crosses, dots and frames on 12x12 pixels, as bytes."""

    def __init__(self, n, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 4, (n,), generator=generator)
        self.images = torch.randint(0, 40, (n, 12, 12), generator=generator, dtype=torch.uint8)
        for image, label in zip(self.images, self.labels.tolist(), strict=True):
            if label in (0, 1):
                image[5:7] = 220
            if label == 1:
                image[:, 5:7] = 220
            if label == 2:
                image[4:8, 4:8] = 220
            if label == 3:
                image[0], image[-1], image[:, 0], image[:, -1] = 220, 220, 220, 220

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index].unsqueeze(0).float() / 255
        return (image - 0.2) / 0.3, self.labels[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(16 * 3 * 3, 32)
        self.fc2 = nn.Linear(32, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        x = self.dropout(F.relu(self.fc1(x)))
        x = self.fc2(x)
        return F.log_softmax(x, dim=1)


def train(args, model, device, loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print(f"Train Epoch: {epoch} [{batch_idx * len(data)}/{len(loader.dataset)}]\tLoss: {loss.item():.6f}")


def test(model, device, loader):
    model.eval()
    test_loss, correct = 0.0, 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            correct += (output.argmax(dim=1) == target).sum().item()
    print(f"Test set: loss {test_loss / len(loader.dataset):.4f}, accuracy {correct}/{len(loader.dataset)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--log-interval", type=int, default=4)
    args = parser.parse_args()
    device = torch.device("cpu")
    train_loader = DataLoader(Shapes(192, seed=3), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(Shapes(64, seed=4), batch_size=64)

    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()
    torch.save(model.state_dict(), "shapes.pt")


if __name__ == "__main__":
    main()
