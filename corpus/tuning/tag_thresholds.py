"""Several tags per photo: bag-of-objects features, positive weights, thresholds tuned on validation, F1 by hand."""

import json

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, Subset

CONFIG = json.loads(
    '{"seed": 52, "rows": 900, "objects": 30, "tags": 6, "hidden": 48, "lr": 0.004, "epochs": 5, "batch": 40}'
)


class Photos(Dataset):
    def __init__(self, cfg):
        g = torch.Generator().manual_seed(cfg["seed"])
        theme = torch.randn(cfg["tags"], cfg["objects"], generator=g)
        mood = torch.randn(cfg["rows"], cfg["tags"], generator=g)
        counts = torch.poisson(torch.exp(0.45 * mood @ theme - 1.0).clamp(max=8.0), generator=g)
        bias = torch.tensor([0.0, -0.4, -0.8, -1.0, -1.3, 0.3])
        self.counts = counts
        self.tags = ((mood + bias) > 0).float()

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, i):
        return {"counts": self.counts[i].log1p(), "tags": self.tags[i]}


class Tagger(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm = nn.BatchNorm1d(cfg["objects"])
        self.body = nn.Sequential(nn.Linear(cfg["objects"], cfg["hidden"]), nn.ReLU(), nn.Dropout(0.2))
        self.tags = nn.Linear(cfg["hidden"], cfg["tags"])

    def forward(self, counts):
        return self.tags(self.body(self.norm(counts)))


def collect(model, loader):
    model.eval()
    with torch.no_grad():
        pairs = [(model(batch["counts"]).sigmoid(), batch["tags"]) for batch in loader]
    return tuple(torch.cat(column) for column in zip(*pairs, strict=True))


def f1(probability, truth, threshold):
    guess = (probability > threshold).float()
    tp = (guess * truth).sum(dim=0)
    return 2 * tp / (guess.sum(dim=0) + truth.sum(dim=0)).clamp(min=1)


def tune(probability, truth):
    """The threshold of each tag that is best on the validation rows."""
    grid = torch.linspace(0.1, 0.9, 17)
    scores = torch.stack([f1(probability, truth, t) for t in grid])
    return grid[scores.argmax(dim=0)]


cfg = CONFIG
torch.manual_seed(cfg["seed"])
photos = Photos(cfg)
order = torch.randperm(len(photos)).tolist()
train, valid, test = Subset(photos, order[:600]), Subset(photos, order[600:750]), Subset(photos, order[750:])
train_loader = DataLoader(train, batch_size=cfg["batch"], shuffle=True)
valid_loader, test_loader = DataLoader(valid, batch_size=100), DataLoader(test, batch_size=100)

share = photos.tags[order[:600]].mean(dim=0)
criterion = nn.BCEWithLogitsLoss(pos_weight=((1 - share) / share).sqrt())
model = Tagger(cfg)
optimizer = torch.optim.NAdam(model.parameters(), lr=cfg["lr"])
best_f1, best_thresholds, best_weights = -1.0, None, None
for epoch in range(cfg["epochs"]):
    model.train()
    for batch in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(batch["counts"]), batch["tags"])
        loss.backward()
        optimizer.step()
    probability, truth = collect(model, valid_loader)
    thresholds = tune(probability, truth)
    macro = f1(probability, truth, thresholds).mean().item()
    if macro > best_f1:
        best_f1, best_thresholds = macro, thresholds
        best_weights = {name: value.clone() for name, value in model.state_dict().items()}
    print(f"epoch {epoch + 1}: loss {loss.item():.3f} validation f1 {macro:.3f}")

model.load_state_dict(best_weights)
probability, truth = collect(model, test_loader)
plain, tuned = f1(probability, truth, 0.5).mean(), f1(probability, truth, best_thresholds).mean()
print(f"test f1 {plain:.3f} at 0.5, {tuned:.3f} at {[round(t, 2) for t in best_thresholds.tolist()]}")
