"""Defects of cloth, from several crops of each picture: crops share the label in training, their guesses are averaged
in evaluation."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Cloth(Dataset):
    """Whole pictures of 20 by 20 with stripes, checks or spots; `crop` makes a stack of smaller ones of each."""

    def __init__(self, n, seed, crop):
        g = torch.Generator().manual_seed(seed)
        y, x = torch.meshgrid(torch.arange(20), torch.arange(20), indexing="ij")
        self.label = torch.randint(0, 3, (n,), generator=g)
        shift = torch.randint(0, 4, (n,), generator=g)
        self.images = torch.empty(n, 1, 20, 20)
        for i in range(n):
            a, b = (y + shift[i]) // 2 % 2, (x + shift[i]) // 2 % 2
            pattern = (a, a ^ b, a & b)[self.label[i]].float()
            self.images[i, 0] = (pattern - pattern.mean()) / pattern.std()
        self.images += 2.2 * torch.randn(self.images.shape, generator=g)
        self.crop = crop

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.crop(self.images[i]), self.label[i]


def random_crops(count, size):
    def crop(image):
        places = torch.randint(0, image.shape[-1] - size + 1, (count, 2)).tolist()
        views = [image[:, t : t + size, left : left + size] for t, left in places]
        return torch.stack([v.flip(-1) if torch.rand(()) < 0.5 else v for v in views])

    return crop


def five_crops(size):
    """The corners and the middle, always the same."""

    def crop(image):
        far, mid = image.shape[-1] - size, (image.shape[-1] - size) // 2
        places = ((0, 0), (0, far), (far, 0), (far, far), (mid, mid))
        return torch.stack([image[:, t : t + size, left : left + size] for t, left in places])

    return crop


class CropNet(nn.Module):
    def __init__(self, channels=12, classes=3):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, channels, 3, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, 2 * channels, 3, stride=2, bias=False),
            nn.BatchNorm2d(2 * channels),
            nn.ReLU(),
        )
        self.head = nn.Linear(2 * channels, classes)

    def forward(self, crops):
        """(batch, crops, 1, size, size) to logits of (batch, crops, classes)."""
        batch, count = crops.shape[:2]
        features = self.trunk(crops.flatten(0, 1)).mean(dim=(2, 3))
        return self.head(features).unflatten(0, (batch, count))


def evaluate(model, loader):
    was = model.training
    model.eval()
    nll, right, seen = 0.0, 0, 0
    with torch.no_grad():
        for crops, label in loader:
            mean = model(crops).softmax(dim=-1).mean(dim=1)
            nll += F.nll_loss(mean.log(), label, reduction="sum").item()
            right += (mean.argmax(dim=-1) == label).sum().item()
            seen += len(label)
    model.train(was)
    return nll / seen, right / seen


def main(epochs=6, count=3, size=12):
    torch.manual_seed(70)
    train_loader = DataLoader(Cloth(192, 71, random_crops(count, size)), batch_size=16, shuffle=True)
    test_loader = DataLoader(Cloth(90, 72, five_crops(size)), batch_size=32)
    model = CropNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.3)
    for epoch in range(epochs):
        model.train()
        for crops, label in train_loader:
            logits = model(crops)
            loss = F.cross_entropy(logits.flatten(0, 1), label.repeat_interleave(count))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()
        nll, accuracy = evaluate(model, test_loader)
        print(f"{epoch}: last loss {loss.item():.3f}, test nll {nll:.3f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
