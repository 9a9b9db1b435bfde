"""Species of moss from small photographs: a large net is trained first, a small one learns from it and from labels."""

import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SPECIES = 5


def photographs(per_species, seed):
    """Photographs as they come from the folders, one species after the other."""
    rng = np.random.default_rng(seed)
    down, across = np.mgrid[0:16, 0:16] / 16
    photos, names = [], []
    for species in range(SPECIES):
        angle = np.pi * species / SPECIES
        for _ in range(per_species):
            wave = np.sin(12 * (across * np.cos(angle) + down * np.sin(angle)) + rng.uniform(0, 6.28))
            green = 128 + 50 * wave + rng.normal(0, 22, (16, 16))
            rest = rng.normal(90, 22, (2, 16, 16))
            photos.append(np.stack([rest[0], green, rest[1]]).clip(0, 255).astype(np.uint8))
            names.append(species)
    return np.stack(photos), np.array(names)


class MossPhotos(Dataset):
    def __init__(self, photos, names, augment):
        self.photos, self.names, self.augment = photos, names, augment

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        photo = torch.from_numpy(self.photos[index]).float() / 255
        photo = (photo - 0.4) / 0.15
        if self.augment:
            across, down = torch.randint(-2, 3, (2,)).tolist()
            photo = photo.roll((down, across), dims=(1, 2)) + 0.1 * torch.randn(3, 16, 16)
        return photo, int(self.names[index])


class MossNet(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU())
        self.body = nn.Sequential(
            nn.Conv2d(12, channels, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
        )
        self.neck = nn.Sequential(nn.Linear(channels * 4, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(24, SPECIES)
        self.stem_frozen = False

    def train(self, mode=True):
        super().train(mode)
        if self.stem_frozen:
            self.stem.eval()
        return self

    def forward(self, x):
        x = self.body(self.stem(x))
        x = F.adaptive_avg_pool2d(x, 2)
        return self.head(self.neck(x.flatten(1)))


class Trainer:
    def __init__(self, model, train_set, test_set, lr, teacher=None):
        self.model, self.teacher = model, teacher
        self.train_loader = DataLoader(train_set, batch_size=20, shuffle=True, num_workers=2)
        self.test_loader = DataLoader(test_set, batch_size=32)
        wanted = [p for p in model.parameters() if p.requires_grad]
        self.opt = torch.optim.SGD(wanted, lr=lr, momentum=0.9, weight_decay=5e-4)

    def loss(self, photos, names):
        logits = self.model(photos)
        loss = F.cross_entropy(logits, names)
        if self.teacher is not None:
            with torch.no_grad():
                taught = F.softmax(self.teacher(photos) / 2, dim=1)
            spoken = F.log_softmax(logits / 2, dim=1)
            loss = 0.5 * loss + 0.5 * 4 * F.kl_div(spoken, taught, reduction="batchmean")
        return loss

    def train_epoch(self):
        self.model.train()
        total = 0.0
        for photos, names in self.train_loader:
            loss = self.loss(photos, names)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item() * len(names)
        return total / len(self.train_loader.dataset)

    @torch.no_grad()
    def accuracy(self):
        self.model.eval()
        right = 0
        for photos, names in self.test_loader:
            logits = self.model(photos)
            right += (logits.argmax(dim=1) == names).sum().item()
        return right / len(self.test_loader.dataset)

    def unfreeze_stem(self):
        self.model.stem_frozen = False
        for p in self.model.stem.parameters():
            p.requires_grad_(True)
        self.opt.add_param_group({"params": list(self.model.stem.parameters()), "lr": self.opt.defaults["lr"] / 5})

    def fit(self, epochs, unfreeze_at=None):
        for epoch in range(epochs):
            if epoch == unfreeze_at:
                self.unfreeze_stem()
            loss = self.train_epoch()
            print(f"epoch {epoch} loss {loss:.3f} accuracy {self.accuracy():.3f}")


def main():
    torch.manual_seed(23)
    photos, names = photographs(40, seed=1)
    train_set = MossPhotos(photos, names, augment=True)
    test_set = MossPhotos(*photographs(10, seed=2), augment=False)

    large = MossNet(channels=20)
    Trainer(large, train_set, test_set, lr=0.04).fit(epochs=2)
    large.eval()
    for p in large.parameters():
        p.requires_grad_(False)

    small = MossNet(channels=10)
    small.stem = copy.deepcopy(large.stem)
    small.stem_frozen = True
    Trainer(small, train_set, test_set, lr=0.04, teacher=large).fit(epochs=4, unfreeze_at=2)
    torch.save(small.state_dict(), "moss.pt")


if __name__ == "__main__":
    main()
