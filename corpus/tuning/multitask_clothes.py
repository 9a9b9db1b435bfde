"""Pictures of clothes and three questions about each: its kind, its patterns (several may hold) and its price."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

KINDS, PATTERNS, SIDE = 4, 3, 12


def catalogue(count, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(KINDS, (count,), generator=g)
    pattern = (torch.rand(count, PATTERNS, generator=g) < 0.4).float()
    pictures = 0.4 * torch.randn(count, 3, SIDE, SIDE, generator=g)
    for i in range(count):
        height, width = 4 + 2 * int(kind[i] // 2), 4 + 4 * int(kind[i] % 2)
        pictures[i, :, 3 : 3 + height, 2 : 2 + width] += 1.0
        if pattern[i, 0]:
            pictures[i, 0, ::2] += 0.8
        if pattern[i, 1]:
            pictures[i, 1, :, ::3] += 0.8
        if pattern[i, 2]:
            pictures[i, 2, -3:] -= 1.0
    price = 0.5 * kind.float() - 0.75 + pattern.sum(dim=1) * 0.4 - 0.48 + 0.1 * torch.randn(count, generator=g)
    return TensorDataset(pictures - 0.4, kind, pattern, price)


class Clothes(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.GroupNorm(4, width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.GroupNorm(4, 2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.drop = nn.Dropout(0.2)
        size = 2 * width * (SIDE // 4) ** 2
        self.heads = nn.ModuleDict(
            {
                "kind": nn.Linear(size, KINDS),
                "pattern": nn.Linear(size, PATTERNS),
                "price": nn.Sequential(nn.Linear(size, 32), nn.ReLU(), nn.Linear(32, 1)),
            }
        )

    def forward(self, picture):
        features = self.drop(self.trunk(picture))
        answers = {task: head(features) for task, head in self.heads.items()}
        answers["price"] = answers["price"].squeeze(1)
        return answers


class Uncertainty(nn.Module):
    """Weighs the tasks by variances that are learned (Kendall and others)."""

    def __init__(self, tasks):
        super().__init__()
        self.log_variance = nn.ParameterDict({task: nn.Parameter(torch.zeros(())) for task in tasks})

    def forward(self, losses):
        total = 0.0
        for task, loss in losses.items():
            total = total + torch.exp(-self.log_variance[task]) * loss + 0.5 * self.log_variance[task]
        return total


def task_losses(answers, kind, pattern, price):
    return {
        "kind": F.cross_entropy(answers["kind"], kind),
        "pattern": F.binary_cross_entropy_with_logits(answers["pattern"], pattern),
        "price": F.mse_loss(answers["price"], price),
    }


def report(net, loader):
    net.eval()
    kinds = patterns = error = count = 0
    with torch.inference_mode():
        for picture, kind, pattern, price in loader:
            answers = net(picture)
            kinds += (answers["kind"].argmax(dim=1) == kind).sum().item()
            patterns += ((answers["pattern"].sigmoid() > 0.5) == pattern.bool()).float().mean(dim=1).sum().item()
            error += (answers["price"] - price).abs().sum().item()
            count += len(kind)
    return {"kind": kinds / count, "pattern": patterns / count, "price": error / count}


torch.manual_seed(2024)
train_loader = DataLoader(catalogue(384, seed=1), batch_size=32, shuffle=True)
test_loader = DataLoader(catalogue(80, seed=2), batch_size=32)
net = Clothes()
weigh = Uncertainty(net.heads)
optimizer = torch.optim.AdamW([*net.parameters(), *weigh.parameters()], lr=2e-3, weight_decay=0.01)
history = []
for epoch in range(4):
    net.train()
    sums = dict.fromkeys(net.heads, 0.0)
    for picture, kind, pattern, price in train_loader:
        losses = task_losses(net(picture), kind, pattern, price)
        total = weigh(losses)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        for task, loss in losses.items():
            sums[task] += loss.item()
    history.append({task: value / len(train_loader) for task, value in sums.items()})
    print(epoch, {task: round(value, 3) for task, value in history[-1].items()}, report(net, test_loader))
torch.save({"net": net.state_dict(), "weigh": weigh.state_dict(), "history": history}, "clothes.pt")
