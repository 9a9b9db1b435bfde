"""Which tile of a mosaic is odd? Trained in half precision with a scaler, stopped after two epochs and resumed."""

import torch
from torch import nn
from torch.amp import GradScaler, autocast
from torch.utils.data import DataLoader, Sampler, TensorDataset

TILES, SIDE = 4, 6
EPOCHS, STOP, BATCH, RATE = 4, 2, 20, 0.02
FILE = "mosaic.ckpt"


def mosaics(count, seed):
    """Three tiles with stripes across and one with stripes along."""
    g = torch.Generator().manual_seed(seed)
    odd = torch.randint(TILES, (count,), generator=g)
    stripes = torch.tensor([1.0, -1.0]).repeat(SIDE // 2)
    across, along = stripes.expand(SIDE, SIDE), stripes[:, None].expand(SIDE, SIDE)
    tiles = torch.empty(count, TILES, 1, SIDE, SIDE)
    for i in range(count):
        for tile in range(TILES):
            tiles[i, tile, 0] = along if tile == odd[i] else across
    return TensorDataset(tiles + 1.6 * torch.randn(tiles.shape, generator=g), odd)


class EpochOrder(Sampler):
    """An order that the number of the epoch decides, so that a resumed run sees what it would have seen."""

    def __init__(self, size, seed):
        self.size, self.seed, self.epoch = size, seed, 0

    def __len__(self):
        return self.size

    def __iter__(self):
        g = torch.Generator().manual_seed(1000 * self.seed + self.epoch)
        return iter(torch.randperm(self.size, generator=g).tolist())


class OddOne(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.look = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(width * (SIDE // 2) ** 2, 16),
            nn.ReLU(),
        )
        self.compare = nn.Sequential(nn.Linear(TILES * 16, 48), nn.ReLU(), nn.Linear(48, TILES))

    def forward(self, tiles):
        if self.training:  # noise that fades in the first hundred steps
            tiles = tiles + 0.5 * (1 - self.seen / 100).clamp(min=0) * torch.randn_like(tiles)
            self.seen += 1
        looks = self.look(tiles.flatten(0, 1)).view(len(tiles), TILES, -1)
        return self.compare(looks.flatten(1))


class Run:
    def __init__(self, train_set, held_set):
        self.order = EpochOrder(len(train_set), seed=6)
        self.train_loader = DataLoader(train_set, batch_size=BATCH, sampler=self.order)
        self.held_loader = DataLoader(held_set, batch_size=32)
        self.model = OddOne()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE, momentum=0.9)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, EPOCHS * len(self.train_loader))
        self.scaler = GradScaler("cpu", init_scale=2.0**10)
        self.epoch = 0

    def save(self):
        parts = ("model", "optimizer", "schedule", "scaler")
        kept = {name: getattr(self, name).state_dict() for name in parts}
        torch.save({**kept, "epoch": self.epoch, "random": torch.get_rng_state()}, FILE)

    def load(self):
        kept = torch.load(FILE)
        self.model.load_state_dict(kept["model"])
        self.optimizer.load_state_dict(kept["optimizer"])
        self.schedule.load_state_dict(kept["schedule"])
        self.scaler.load_state_dict(kept["scaler"])
        self.epoch = kept["epoch"]
        torch.set_rng_state(kept["random"])

    def update(self, tiles, odd):
        with autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(self.model(tiles), odd)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        return loss.item()

    def accuracy(self):
        self.model.eval()
        with torch.no_grad():
            right = sum((self.model(tiles).argmax(1) == odd).sum().item() for tiles, odd in self.held_loader)
        return right / len(self.held_loader.dataset)

    def until(self, last):
        while self.epoch < last:
            self.model.train()
            self.order.epoch = self.epoch
            losses = [self.update(tiles, odd) for tiles, odd in self.train_loader]
            self.epoch += 1
            self.save()
            print(f"epoch {self.epoch}: loss {sum(losses) / len(losses):.3f}, right {self.accuracy():.3f}")


if __name__ == "__main__":
    torch.manual_seed(66)
    data = mosaics(320, seed=1), mosaics(70, seed=2)
    Run(*data).until(STOP)
    resumed = Run(*data)
    resumed.load()
    resumed.until(EPOCHS)
