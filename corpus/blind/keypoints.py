"""Keypoint regression (two ears and the nose of a drawn cat); images and points are augmented together."""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 24
LEFT_EAR, RIGHT_EAR, NOSE = 0, 1, 2  # left and right as seen in the image


def draw_cat(rng):
    """One image with its three points as (x, y) in pixels."""
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    angle, size = rng.uniform(-0.5, 0.5), rng.uniform(3.5, 5.0)
    center = rng.uniform(9, 15, size=2)
    up, side = np.array([np.sin(angle), -np.cos(angle)]), np.array([np.cos(angle), np.sin(angle)])
    points = np.stack([center + size * (1.0 * up - 0.8 * side), center + size * (1.0 * up + 0.8 * side), center - 0.5 * size * up])
    image = 0.5 * np.exp(-((xx - center[0]) ** 2 + (yy - center[1]) ** 2) / (1.2 * size ** 2))
    for (x, y), width in zip(points, (1.5, 1.5, 0.8)):
        image += np.exp(-((xx - x) ** 2 + (yy - y) ** 2) / (2 * width))
    return image + 0.1 * rng.normal(size=image.shape), points


class Cats(Dataset):
    def __init__(self, n, seed, augment=False):
        self.rng, self.augment = np.random.default_rng(seed), augment
        drawn = [draw_cat(self.rng) for _ in range(n)]
        self.images = torch.tensor(np.stack([d[0] for d in drawn]), dtype=torch.float32)
        self.points = torch.tensor(np.stack([d[1] for d in drawn]), dtype=torch.float32)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, points = self.images[i], self.points[i]
        if self.augment:
            image, points = self.transform(image, points.clone(), self.rng)
        return image.unsqueeze(0), points / SIZE

    @staticmethod
    def transform(image, points, rng):
        if rng.random() < 0.5:
            image = image.flip(-1)
            points[:, 0] = SIZE - 1 - points[:, 0]
            points = points[[RIGHT_EAR, LEFT_EAR, NOSE]]
        dx, dy = rng.integers(-2, 3, size=2).tolist()
        image = torch.roll(image, (dy, dx), dims=(0, 1))
        points = points + torch.tensor([dx, dy])
        return image, points


class KeypointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 12, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(24 * 36, 64), nn.ReLU(), nn.Linear(64, 6))

    def forward(self, image):
        return self.net(image).view(-1, 3, 2) + 0.5


@torch.no_grad()
def test_error(model, loader):
    """Mean distance in pixels and share of points within a pixel."""
    model.eval()
    errors = torch.cat([(model(image) - points).norm(dim=-1) * SIZE for image, points in loader])
    model.train()
    return errors.mean().item(), (errors < 1.0).float().mean().item()


def main(epochs=10, lr=8e-3):
    torch.manual_seed(4)
    train, test = Cats(320, seed=1, augment=True), Cats(200, seed=2)
    train_loader = DataLoader(train, batch_size=32, shuffle=True)
    test_loader = DataLoader(test, batch_size=100)
    model = KeypointNet()
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=lr, total_steps=epochs * len(train_loader))
    print("untrained: mean error %.3f px, within a pixel %.4f" % test_error(model, test_loader))
    for epoch in range(epochs):
        total = 0.0
        for image, points in train_loader:
            loss = F.smooth_l1_loss(model(image), points, beta=0.05)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            total += loss.item()
        if epoch % 3 == 0:
            print("epoch %d: loss %.5f, test error %.3f px" % (epoch + 1, total / len(train_loader), test_error(model, test_loader)[0]))
    print("trained: mean error %.3f px, within a pixel %.4f" % test_error(model, test_loader))


if __name__ == "__main__":
    main()
