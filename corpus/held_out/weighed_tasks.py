"""Letters of travellers: season, distance and mood from one network, the losses weighed by learned uncertainty."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


class Letters(Dataset):
    """Counts of forty words; three things that they tell, one of them loudly and one hardly at all."""

    def __init__(self, count: int, seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        self.season = torch.randint(4, (count,), generator=g)
        self.distance = torch.randn(count, generator=g)
        self.mood = torch.randn(count, generator=g)
        by_season = torch.randn(4, 40, generator=g)
        by_distance, by_mood = torch.randn(2, 40, generator=g)
        rates = by_season[self.season] + self.distance[:, None] * by_distance + 0.3 * self.mood[:, None] * by_mood
        self.words = torch.log1p(torch.poisson(torch.exp(0.4 * rates), generator=g))

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"words": self.words[i], "season": self.season[i], "distance": self.distance[i], "mood": self.mood[i]}


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 48), nn.ReLU())
        self.season, self.distance, self.mood = nn.Linear(48, 4), nn.Linear(48, 1), nn.Linear(48, 1)

    def forward(self, words: torch.Tensor) -> dict[str, torch.Tensor]:
        h = self.trunk(words)
        return {"season": self.season(h), "distance": self.distance(h)[:, 0], "mood": self.mood(h)[:, 0]}


class UncertaintyWeights(nn.Module):
    """One logarithm of a variance for each task (Kendall, Gal and Cipolla)."""

    def __init__(self, tasks: list[str]) -> None:
        super().__init__()
        self.log_var = nn.ParameterDict({task: nn.Parameter(torch.zeros(())) for task in tasks})

    def forward(self, losses: dict[str, torch.Tensor]) -> torch.Tensor:
        return sum(torch.exp(-self.log_var[task]) * loss + 0.5 * self.log_var[task] for task, loss in losses.items())


def task_losses(out: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        "season": F.cross_entropy(out["season"], batch["season"]),
        "distance": 0.5 * F.mse_loss(out["distance"], batch["distance"]),
        "mood": 0.5 * F.mse_loss(out["mood"], batch["mood"]),
    }


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader) -> dict[str, float]:
    model.eval()
    sums = {"season": 0.0, "distance": 0.0, "mood": 0.0}
    for batch in loader:
        for task, loss in task_losses(model(batch["words"]), batch).items():
            sums[task] += loss.item() * len(batch["words"])
    return {task: round(value / len(loader.dataset), 3) for task, value in sums.items()}


def main() -> None:
    torch.manual_seed(41)
    train_set, valid_set = random_split(Letters(560, seed=41), [460, 100])
    train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
    valid_loader = DataLoader(valid_set, batch_size=50)
    model, weights = Reader(), UncertaintyWeights(["season", "distance", "mood"])
    optimizer = torch.optim.AdamW(
        [
            {"params": model.parameters(), "weight_decay": 1e-2},
            {"params": weights.parameters(), "weight_decay": 0.0, "lr": 2e-2},
        ],
        lr=5e-3,
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
    for epoch in range(6):
        model.train()
        total = 0.0
        for batch in train_loader:
            loss = weights(task_losses(model(batch["words"]), batch))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch["words"])
        scheduler.step()
        scale = {task: round(value.exp().item(), 2) for task, value in weights.log_var.items()}
        print(f"epoch {epoch + 1} loss {total / len(train_set):.3f} valid {evaluate(model, valid_loader)} var {scale}")
    torch.save({"model": model.state_dict(), "weights": weights.state_dict()}, "letters.pt")


if __name__ == "__main__":
    main()
