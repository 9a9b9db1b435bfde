"""Anomaly detection on a vibration-like signal: a denoising autoencoder on windows, threshold from validation."""
import math
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

WINDOW, HOP = 48, 12
CHECKPOINT = "vibration_ae.pt"
gen = torch.Generator().manual_seed(41)


def healthy(n):
    """Two coupled tones with slowly drifting amplitude, sensor offset and noise (in millivolts)."""
    t = torch.arange(n, dtype=torch.float32)
    drift = 1 + 0.25 * torch.sin(2 * math.pi * t / 900 + 6 * torch.rand(1, generator=gen))
    tone = torch.sin(2 * math.pi * t / 16) + 0.5 * torch.sin(2 * math.pi * t / 8 + 0.7)
    return 120 + 30 * drift * tone + 6 * torch.randn(n, generator=gen)


def with_faults(n, n_faults, length=24):
    """Healthy signal with short faults of three kinds; returns signal and a 0/1 flag per sample."""
    signal, flags = healthy(n), torch.zeros(n)
    starts = torch.linspace(200, n - 200, n_faults).long() + torch.randint(0, 60, (n_faults,), generator=gen)
    for k, s in enumerate(starts.tolist()):
        part = slice(s, s + length)
        if k % 3 == 0:    # louder
            signal[part] = 120 + 1.8 * (signal[part] - 120)
        elif k % 3 == 1:  # tone missing
            signal[part] = 120 + 0.3 * (signal[part] - 120)
        else:             # extra high tone
            signal[part] += 28 * torch.sin(2 * math.pi * torch.arange(length) / 5)
        flags[part] = 1
    return signal, flags


def windows(signal):
    return signal.unfold(0, WINDOW, HOP)


def window_labels(flags):
    """A window is faulty if a good part of it (8 samples or more) is."""
    return flags.unfold(0, WINDOW, HOP).sum(dim=1) >= 8


class DenoisingAE(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("std", torch.ones(()))
        self.encoder = nn.Sequential(nn.Linear(WINDOW, 64), nn.ReLU(), nn.Linear(64, latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 64), nn.ReLU(), nn.Linear(64, WINDOW))

    def fit_scale(self, signal):
        self.mean.fill_(signal.mean())
        self.std.fill_(signal.std())

    def scale(self, x):
        return (x - self.mean) / self.std

    def forward(self, x):
        return self.decoder(self.encoder(x))


@torch.no_grad()
def scores(model, x):
    model.eval()
    x = model.scale(x)
    return (model(x) - x).pow(2).mean(dim=1)


def f1_score(flagged, truth):
    tp = (flagged & truth).sum().item()
    return 2 * tp / max(1, flagged.sum().item() + truth.sum().item())


def auroc(score, truth):
    pos, neg = score[truth], score[~truth]
    return (pos[:, None] > neg[None, :]).float().mean().item()


def report(model, x_val, x_test, truth, title):
    threshold = torch.quantile(scores(model, x_val), 0.99)
    s = scores(model, x_test)
    flagged = s > threshold
    print(f"{title}: F1 {f1_score(flagged, truth):.3f}, AUROC {auroc(s, truth):.3f}, "
          f"{int(flagged.sum())} of {len(flagged)} windows flagged")


def train(model, x_train, x_val, epochs=30, noise=0.3):
    loader = DataLoader(TensorDataset(model.scale(x_train)), batch_size=50, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    best = float("inf")
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for (x,) in loader:
            noisy = x + noise * torch.randn_like(x)
            loss = F.mse_loss(model(noisy), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        schedule.step()
        val = scores(model, x_val).mean().item()
        if val < best:
            best = val
            torch.save(model.state_dict(), CHECKPOINT)
        if epoch % 6 == 5:
            print(f"epoch {epoch + 1}: train loss {total / len(loader):.4f}, validation error {val:.4f}")


def main():
    torch.manual_seed(41)
    train_signal, val_signal = healthy(9000), healthy(4000)
    test_signal, flags = with_faults(9000, 36)
    x_train, x_val, x_test = windows(train_signal), windows(val_signal), windows(test_signal)
    truth = window_labels(flags)
    print(f"{len(x_train)} training windows, {truth.float().mean():.2f} of {len(truth)} test windows faulty")

    model = DenoisingAE()
    model.fit_scale(train_signal)
    report(model, x_val, x_test, truth, "before")
    train(model, x_train, x_val)

    final = DenoisingAE()
    final.load_state_dict(torch.load(CHECKPOINT))
    os.remove(CHECKPOINT)
    report(final, x_val, x_test, truth, "after")


if __name__ == "__main__":
    main()
