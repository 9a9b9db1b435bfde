"""A small residual network sorts number plates by country; one-cycle rate, moving average of the weights."""

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(77)
COUNTRIES, SIDE = 5, 16
MEAN, STD = 0.42, 0.21


def photograph(total):
    """Byte pictures: a country's pattern, moved a little, under noise."""
    patterns = torch.rand(COUNTRIES, 3, SIDE, SIDE) * 190
    country = torch.randint(COUNTRIES, (total,))
    shots = patterns[country] + 60 * torch.rand(total, 3, SIDE, SIDE)
    return TensorDataset(shots.to(torch.uint8), country)


def augment(images):
    """Some are mirrored top to bottom, all are brightened or darkened."""
    flip = torch.rand(len(images), 1, 1, 1) < 0.2
    images = torch.where(flip, images.flip(-2), images)
    return images * (0.9 + 0.2 * torch.rand(len(images), 1, 1, 1))


class BasicBlock(nn.Module):
    def __init__(self, inner, outer, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.short = nn.Identity() if inner == outer else nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, x):
        shortcut = self.short(x)
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + shortcut)


class PlateNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.stages = nn.Sequential(BasicBlock(8, 8), BasicBlock(8, 16, 2), BasicBlock(16, 16))
        self.fc = nn.Linear(16, COUNTRIES)

    def forward(self, x):
        x = self.stages(F.relu(self.stem(x)))
        pooled = x.mean(dim=(2, 3))
        return self.fc(pooled)


def prepare(raw):
    return (raw.float() / 255 - MEAN) / STD


def validate(net, loader):
    net.eval()
    hits, loss_sum, seen = 0, 0.0, 0
    with torch.no_grad():
        for raw, label in loader:
            scores = net(prepare(raw))
            loss_sum += F.cross_entropy(scores, label, reduction="sum").item()
            hits += (scores.argmax(1) == label).sum().item()
            seen += len(label)
    return loss_sum / seen, hits / seen


train_set, val_set = random_split(photograph(300), [240, 60])
train_loader = DataLoader(train_set, batch_size=20, shuffle=True, drop_last=True)
val_loader = DataLoader(val_set, batch_size=32)
net = PlateNet()
optimizer = optim.SGD(net.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=5e-4)
cycle = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, epochs=3, steps_per_epoch=len(train_loader))
average = optim.swa_utils.AveragedModel(net, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True)

for epoch in range(3):
    net.train()
    for raw, label in train_loader:
        images = augment(prepare(raw))
        scores = net(images)
        loss = F.cross_entropy(scores, label)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        cycle.step()
        average.update_parameters(net)
    val_loss, val_acc = validate(net, val_loader)
    print(f"epoch {epoch + 1}: loss {loss.item():.3f}, val {val_loss:.3f}, accuracy {val_acc:.2f}")
print("averaged:", validate(average, val_loader))
state = {"net": net.state_dict(), "average": average.state_dict(), "optimizer": optimizer.state_dict()}
torch.save(state | {"cycle": cycle.state_dict()}, "plates.pt")
