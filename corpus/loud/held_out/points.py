import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

# memory limit: 24MiB


class Clouds(Dataset):
    def __init__(self, size, points=128):
        self.size, self.points = size, points

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        kind = index % 3
        cloud = torch.randn(self.points, 3, generator=generator) * torch.tensor([1.0, 1.0 + kind, 0.5])
        return cloud, kind


def neighbours(x, k):
    distances = torch.cdist(x, x)
    return distances.topk(k, largest=False).indices


class EdgeConv(nn.Module):
    def __init__(self, inside, outside, k):
        super().__init__()
        self.k = k
        self.net = nn.Sequential(nn.Linear(2 * inside, outside), nn.ReLU(), nn.Linear(outside, outside))

    def forward(self, x):
        near = neighbours(x, self.k)
        rows = torch.arange(len(x)).view(-1, 1, 1)
        others = x[rows, near]
        own = x.unsqueeze(2).expand_as(others)
        edges = torch.cat([own, others - own], dim=-1)
        return self.net(edges).amax(dim=2)


class PointNet(nn.Module):
    def __init__(self, width=32, kinds=3, k=8):
        super().__init__()
        self.convs = nn.ModuleList([EdgeConv(3, width, k), EdgeConv(width, width, k)])
        self.head = nn.Linear(width, kinds)

    def forward(self, clouds):
        x = clouds
        for conv in self.convs:
            x = conv(x)
        return self.head(x.mean(1))


def evaluate(model, loader):
    model.eval()
    total, right = 0.0, 0
    with torch.no_grad():
        for clouds, kinds in loader:
            scores = model(clouds)
            total += F.cross_entropy(scores, kinds)
            right += (scores.argmax(1) == kinds).sum().item()
    model.train()
    return total / len(loader), right


def main():
    torch.manual_seed(0)
    training, testing = Clouds(96), Clouds(96)
    train_loader = DataLoader(training, batch_size=8, shuffle=True)
    test_loader = DataLoader(testing, batch_size=8)
    model = PointNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for clouds, kinds in train_loader:
        loss = F.cross_entropy(model(clouds), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    loss, right = evaluate(model, test_loader)
    print(f"loss {loss:.3f}, {right} right")


main()
