import numpy as np
import torch
from torch import nn

# Deep metric learning: train on some classes, retrieve among classes never seen in training.


class Config:
    seed = 11
    n_classes = 30
    n_train_classes = 20
    per_class = 36
    dim_in = 40
    dim_emb = 12
    classes_per_batch = 8
    samples_per_class = 4
    margin = 0.3
    epochs = 10
    batches_per_epoch = 40
    lr = 3e-3


def make_data(cfg):
    """Six hidden factors: three say which class it is, the others are nuisance of larger size."""
    rng = np.random.default_rng(cfg.seed)
    centers = rng.uniform(-2, 2, size=(cfg.n_classes, 4))
    y = np.repeat(np.arange(cfg.n_classes), cfg.per_class)
    identity = centers[y] + 0.35 * rng.normal(size=(len(y), 4))
    nuisance = 2.5 * rng.normal(size=(len(y), 4))
    hidden = np.concatenate([identity, nuisance], axis=1)
    mix1 = rng.normal(size=(8, 40)) / np.sqrt(8)
    mix2 = rng.normal(size=(40, cfg.dim_in)) / np.sqrt(40)
    x = np.tanh(hidden @ mix1 * 0.7) @ mix2 + 0.05 * rng.normal(size=(len(y), cfg.dim_in))
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


class PKSampler:
    """Yields index lists: P classes, K samples of each, class after class."""

    def __init__(self, labels, p, k, n_batches, seed):
        self.by_class = {int(c): np.flatnonzero(labels.numpy() == int(c)) for c in labels.unique()}
        self.p, self.k, self.n_batches = p, k, n_batches
        self.rng = np.random.default_rng(seed)

    def __iter__(self):
        classes = np.array(sorted(self.by_class))
        for _ in range(self.n_batches):
            chosen = self.rng.choice(classes, self.p, replace=False)
            yield np.concatenate([self.rng.choice(self.by_class[c], self.k, replace=False) for c in chosen])


class EmbeddingNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(cfg.dim_in, 96), nn.BatchNorm1d(96), nn.ReLU(),
            nn.Linear(96, 96), nn.BatchNorm1d(96), nn.ReLU(),
            nn.Linear(96, cfg.dim_emb),
        )

    def forward(self, x):
        return nn.functional.normalize(self.net(x), dim=1)


def pairwise_distances(z):
    squared = (2 - 2 * z @ z.T).clamp_min(1e-8)
    return squared.sqrt()


def batch_hard_triplet_loss(z, labels, margin):
    dist = pairwise_distances(z)
    same = labels[:, None] == labels[None, :]
    eye = torch.eye(len(z), dtype=torch.bool)
    hardest_positive = dist.masked_fill(~same | eye, 0.0).max(dim=1).values
    hardest_negative = dist.masked_fill(same, float("inf")).min(dim=1).values
    return torch.relu(hardest_positive - hardest_negative + margin).mean()


@torch.no_grad()
def recall_at_1(model, x, y, batch_size=72):
    was_training = model.training
    model.eval()
    z = torch.cat([model(part) for part in x.split(batch_size)])
    dist = pairwise_distances(z)
    dist.fill_diagonal_(float("inf"))  # a query must not find itself
    nearest = dist.argmin(dim=1)
    model.train(was_training)
    return (y[nearest] == y).float().mean().item()


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    x, y = make_data(cfg)
    is_train = y < cfg.n_train_classes
    x_train, y_train = x[is_train], y[is_train]
    x_test, y_test = x[~is_train], y[~is_train]
    mean, std = x_train.mean(0), x_train.std(0)
    x_train, x_test = (x_train - mean) / std, (x_test - mean) / std

    sampler = PKSampler(y_train, cfg.classes_per_batch, cfg.samples_per_class, cfg.batches_per_epoch, cfg.seed)
    # rows of a batch come class after class, so their group numbers are always the same
    groups = torch.arange(cfg.classes_per_batch).repeat_interleave(cfg.samples_per_class)

    model = EmbeddingNet(cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.3)
    print(f"before training: recall@1 {recall_at_1(model, x_test, y_test):.3f} on {len(y_test)} unseen-class samples")

    for epoch in range(cfg.epochs):
        model.train()
        total = 0.0
        for rows in sampler:
            z = model(x_train[rows])
            loss = batch_hard_triplet_loss(z, groups, cfg.margin)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        if epoch % 3 == 0 or epoch == cfg.epochs - 1:
            print(f"epoch {epoch:2d}  triplet loss {total / cfg.batches_per_epoch:.4f}  "
                  f"train recall@1 {recall_at_1(model, x_train, y_train):.3f}")

    print(f"after training: recall@1 {recall_at_1(model, x_test, y_test):.3f}")


if __name__ == "__main__":
    main()
