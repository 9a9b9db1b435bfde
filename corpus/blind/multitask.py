"""Two tasks on one trunk: fault class and remaining life of a pump from sensor statistics.

Remaining life is known for a part of the pumps only; the two losses are weighted by learned uncertainties."""
import copy
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 4


def make_pumps(n, rng, world):
    fault = rng.choice(CLASSES, size=n, p=[0.4, 0.3, 0.2, 0.1])
    wear = rng.beta(2, 2, size=n)
    latent = np.concatenate([world["fault"][fault], wear[:, None], wear[:, None] * world["fault"][fault][:, :2]], axis=1)
    x = np.tanh(latent @ world["mix"]) + 0.9 * rng.normal(size=(n, world["mix"].shape[1]))
    life = 900.0 * (1.0 - wear) / (1.0 + 0.4 * fault) + 20.0 * rng.normal(size=n)
    known = rng.random(n) < 0.5
    life = np.where(known, life, 0.0)
    return [torch.tensor(a, dtype=d) for a, d in ((x, torch.float32), (fault, torch.long), (life, torch.float32), (known, torch.bool))]


class PumpNet(nn.Module):
    def __init__(self, n_in, width=48):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(n_in, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, width), nn.ReLU())
        self.fault_head = nn.Linear(width, CLASSES)
        self.life_head = nn.Sequential(nn.Linear(width, 24), nn.ReLU(), nn.Linear(24, 1))
        self.log_var = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        h = self.trunk(x)
        return self.fault_head(h), self.life_head(h).squeeze(-1)


def losses(model, batch, scale):
    x, fault, life, known = batch
    logits, life_hat = model(x)
    fault_loss = F.cross_entropy(logits, fault)
    life_loss = F.smooth_l1_loss(life_hat[known], ((life - scale[0]) / scale[1])[known])
    return fault_loss, life_loss


def joint(model, fault_loss, life_loss):
    """Kendall et al.: each loss divided by its learned variance, plus the log of the variance."""
    parts = torch.stack([fault_loss, life_loss])
    return (torch.exp(-model.log_var) * parts + 0.5 * model.log_var).sum()


@torch.no_grad()
def evaluate(model, tensors, scale):
    model.eval()
    x, fault, life, known = tensors
    logits, life_hat = model(x)
    acc = (logits.argmax(1) == fault).float().mean().item()
    hours = life_hat * scale[1] + scale[0]
    mae = (hours - life)[known].abs().mean().item()
    return acc, mae


def fit(train, valid, scale, epochs=24, lr=4e-3, warmup=20):
    model = PumpNet(train[0].shape[1])
    opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-2)
    loader = DataLoader(TensorDataset(*train), batch_size=64, shuffle=True)
    steps = epochs * len(loader)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min((s + 1) / warmup, 0.5 * (1 + math.cos(math.pi * s / steps))))
    best, best_state = -math.inf, None
    for epoch in range(epochs):
        model.train()
        sums = np.zeros(2)
        for batch in loader:
            fault_loss, life_loss = losses(model, batch, scale)
            loss = joint(model, fault_loss, life_loss)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            opt.step()
            sched.step()
            sums += [fault_loss.item(), life_loss.item()]
        acc, mae = evaluate(model, valid, scale)
        score = acc - mae / scale[1].item()
        if score > best:
            best, best_state = score, copy.deepcopy(model.state_dict())
        if epoch % 6 == 0:
            a, b = sums / len(loader)
            print(f"epoch {epoch:2d}: fault loss {a:.4f}, life loss {b:.4f}; valid accuracy {acc:.4f}, life error {mae:.1f} h; "
                  f"weights {torch.exp(-model.log_var).tolist()[0]:.2f} {torch.exp(-model.log_var).tolist()[1]:.2f}")
    model.load_state_dict(best_state)
    return model


def main():
    torch.manual_seed(13)
    rng = np.random.default_rng(13)
    world = {"fault": rng.normal(size=(CLASSES, 6)) * 0.7, "mix": rng.normal(size=(9, 20)) * 0.8}
    train, valid, test = (make_pumps(n, rng, world) for n in (1200, 300, 500))
    center, spread = train[0].mean(0), train[0].std(0)
    for part in (train, valid, test):
        part[0] = (part[0] - center) / spread
    life_known = train[2][train[3]]
    scale = (life_known.mean(), life_known.std())
    print("untrained: accuracy %.4f, life error %.1f h" % evaluate(PumpNet(20), test, scale))
    model = fit(train, valid, scale)
    print("test: accuracy %.4f, life error %.1f h" % evaluate(model, test, scale))


if __name__ == "__main__":
    main()
