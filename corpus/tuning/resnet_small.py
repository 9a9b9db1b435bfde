"""A small ResNet on 16x16 pictures with crops and flips, SGD and a cosine schedule; keeps the best weights."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(31)
device = "cuda" if torch.cuda.is_available() else "cpu"
best_acc = 0.0


class Cifarish(Dataset):
    def __init__(self, n, seed, train):
        g = torch.Generator().manual_seed(seed)
        means = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
        self.targets = torch.randint(0, 4, (n,), generator=g)
        self.data = means[self.targets] + 0.6 * torch.randn(n, 3, 16, 16, generator=g)
        self.train = train

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        img = self.data[index]
        if self.train:
            img = F.pad(img, (1, 1, 1, 1))
            top, left = torch.randint(0, 3, (2,)).tolist()
            img = img[:, top : top + 16, left : left + 16]
            if torch.rand(1).item() < 0.5:
                img = torch.flip(img, dims=[2])
        return img, self.targets[index]


class BasicBlock(nn.Module):
    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_planes, planes, 1, stride=stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out = out + self.shortcut(x)
        return F.relu(out)


class ResNet(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = BasicBlock(8, 8)
        self.layer2 = BasicBlock(8, 16, stride=2)
        self.linear = nn.Linear(16, num_classes)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.layer1(out)
        out = self.layer2(out)
        out = F.adaptive_avg_pool2d(out, 1)
        out = out.view(out.size(0), -1)
        return self.linear(out)


trainset, testset = Cifarish(192, 1, train=True), Cifarish(64, 2, train=False)
trainloader = DataLoader(trainset, batch_size=24, shuffle=True, num_workers=0)
testloader = DataLoader(testset, batch_size=32, shuffle=False, num_workers=0)
net = ResNet().to(device)
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
epochs = 3
scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)


def train(epoch):
    net.train()
    train_loss, correct, total = 0, 0, 0
    for batch_idx, (inputs, targets) in enumerate(trainloader):
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()

        train_loss += loss.item()
        _, predicted = outputs.max(1)
        total += targets.size(0)
        correct += predicted.eq(targets).sum().item()
    print(f"{epoch}: loss {train_loss / (batch_idx + 1):.3f} acc {100.0 * correct / total:.1f}")


def test(epoch):
    global best_acc
    net.eval()
    correct, total = 0, 0
    with torch.no_grad():
        for inputs, targets in testloader:
            inputs, targets = inputs.to(device), targets.to(device)
            outputs = net(inputs)
            _, predicted = outputs.max(1)
            total += targets.size(0)
            correct += predicted.eq(targets).sum().item()
    acc = 100.0 * correct / total
    if acc > best_acc:
        state = {"net": net.state_dict(), "acc": acc, "epoch": epoch}
        os.makedirs("checkpoint", exist_ok=True)
        torch.save(state, "checkpoint/ckpt.pth")
        best_acc = acc


for epoch in range(epochs):
    train(epoch)
    test(epoch)
    scheduler.step()
