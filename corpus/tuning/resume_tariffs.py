"""Next hour's electricity tariff by a recurrent network: trains, stops with a checkpoint, and goes on from it."""

import copy
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

CHECKPOINT = Path("tariffs.ckpt")
REGIONS, HOURS, CHUNK, BATCH, EPOCHS = 56, 73, 18, 8, 6


def make_tariffs(seed: int) -> torch.Tensor:
    """Regions x hours x (tariff, demand, temperature) in cents, megawatts and degrees."""
    g = torch.Generator().manual_seed(seed)
    hour = torch.arange(HOURS).float()
    phase = torch.rand(REGIONS, 1, generator=g) * 4
    warm = 14 + 6 * torch.sin((hour + phase) * math.pi / 12) + torch.randn(REGIONS, HOURS, generator=g)
    demand = 420 + 90 * torch.sin((hour + phase - 4) * math.pi / 12) + 20 * torch.randn(REGIONS, HOURS, generator=g)
    tariff = [torch.full((REGIONS,), 20.0)]
    for t in range(1, HOURS):
        pull = 20 + 0.03 * (demand[:, t - 1] - 420) - 0.25 * (warm[:, t - 1] - 14)
        tariff.append(0.6 * tariff[-1] + 0.4 * pull + 0.2 * torch.randn(REGIONS, generator=g))
    return torch.stack([torch.stack(tariff, dim=1), demand, warm], dim=-1)


class TariffNet(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([20.0, 420.0, 14.0]))
        self.register_buffer("deviation", torch.ones(3))
        self.rnn = nn.GRU(3, width, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(width, 1)
        self.daily = nn.Parameter(torch.zeros(24))

    def forward(self, x, hidden=None, first_hour=0):
        if self.training:
            with torch.no_grad():
                self.mean.lerp_(x.mean(dim=(0, 1)), 0.05)
                self.deviation.lerp_(x.std(dim=(0, 1)), 0.05)
        x = (x - self.mean) / self.deviation
        out, hidden = self.rnn(x, hidden)
        hours = (torch.arange(x.shape[1]) + first_hour) % 24
        return self.head(self.dropout(out)).squeeze(-1) + self.daily[hours], hidden


def chunks(series):
    """Pieces of a day or so: readings, the changes of the tariff in the next hour, and the hour of the first."""
    change = series[:, 1:, 0] - series[:, :-1, 0]
    for first in range(0, HOURS - 1, CHUNK):
        yield series[:, first : first + CHUNK], change[:, first : first + CHUNK], first


def evaluate(model, series):
    model.eval()
    summed, count = 0.0, 0
    with torch.no_grad():
        for part in series.split(BATCH):
            hidden = None
            for x, change, first in chunks(part):
                guess, hidden = model(x, hidden, first)
                summed += F.mse_loss(guess, change, reduction="sum").item()
                count += change.numel()
    return summed / count


def run(stop: int, resume: bool) -> None:
    torch.manual_seed(8)
    series = make_tariffs(seed=1)
    train, val = series[:44], series[44:]
    order = torch.Generator().manual_seed(2)
    model = TariffNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    steps = EPOCHS * math.ceil(len(train) / BATCH)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    start, best, best_model = 0, float("inf"), None
    if resume:
        state = torch.load(CHECKPOINT)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        torch.set_rng_state(state["rng"])
        order.set_state(state["order"])
        start, best, best_model = state["epoch"] + 1, state["best"], state["best_model"]
        print(f"goes on at epoch {start + 1} with rate {scheduler.get_last_lr()[0]:.5f}")
    for epoch in range(start, stop):
        model.train()
        for rows in torch.randperm(len(train), generator=order).split(BATCH):
            pieces = list(chunks(train[rows]))
            hidden = None
            optimizer.zero_grad()
            for x, change, first in pieces:
                guess, hidden = model(x, hidden, first)
                hidden = hidden.detach()
                loss = F.mse_loss(guess, change) / len(pieces)
                loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
        error = evaluate(model, val)
        if error < best:
            best, best_model = error, copy.deepcopy(model.state_dict())
        print(f"epoch {epoch + 1} loss {loss.item() * len(pieces):.4f} error {error:.4f} best {best:.4f}")
        state = {
            "epoch": epoch,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "rng": torch.get_rng_state(),
            "order": order.get_state(),
            "best": best,
            "best_model": best_model,
        }
        torch.save(state, CHECKPOINT)
    model.load_state_dict(best_model)
    print(f"best model: error {evaluate(model, val):.4f}")


if __name__ == "__main__":
    run(3, resume=False)
    run(EPOCHS, resume=True)
