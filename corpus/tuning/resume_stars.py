"""Light curves of variable stars, forecast by a GRU in windows: stopped halfway, saved, made anew and gone on with."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

STARS, LENGTH, WINDOW, CHUNK, EPOCHS = 48, 121, 20, 6, 6
WINDOWS = (LENGTH - 1) // WINDOW


def light_curves(count, seed):
    g = torch.Generator().manual_seed(seed)
    time = torch.arange(LENGTH, dtype=torch.float32)
    period = 8 + 20 * torch.rand(count, 1, generator=g)
    phase = 6.28 * torch.rand(count, 1, generator=g)
    bright = 12 + 1.5 * torch.sin(6.28 * time / period + phase) + 0.5 * torch.sin(12.56 * time / period)
    return bright + 0.1 * torch.randn(count, LENGTH, generator=g)


class RunningScale(nn.Module):
    """Standardises by what it has seen in training."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("square", torch.zeros(()))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.seen += 1
            self.mean.lerp_(x.mean(), 1 / self.seen.clamp(max=50))
            self.square.lerp_(x.square().mean(), 1 / self.seen.clamp(max=50))
        return (x - self.mean) / (self.square - self.mean**2).clamp(min=1e-4).sqrt()


class StarNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.scale = RunningScale()
        self.gru = nn.GRU(1, width, batch_first=True)
        self.drop = nn.Dropout(0.05)
        self.change = nn.Linear(width, 1)

    def forward(self, bright, state):
        out, state = self.gru(self.scale(bright).unsqueeze(2), state)
        return bright + self.change(self.drop(out)).squeeze(2), state


def make():
    model = StarNet()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.7**epoch)
    return model, average, optimizer, scheduler


def save(path, epoch, best, model, average, optimizer, scheduler):
    kept = {
        "epoch": epoch,
        "best": best,
        "model": model.state_dict(),
        "average": average.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "rng": torch.get_rng_state(),
    }
    torch.save(kept, path)


def load(path, model, average, optimizer, scheduler):
    kept = torch.load(path, weights_only=True)
    model.load_state_dict(kept["model"])
    average.load_state_dict(kept["average"])
    optimizer.load_state_dict(kept["optimizer"])
    scheduler.load_state_dict(kept["scheduler"])
    torch.set_rng_state(kept["rng"])
    return kept["epoch"] + 1, kept["best"]


def follow(average, model):
    with torch.no_grad():
        for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
            slow.lerp_(fast, 0.2)
        for slow, fast in zip(average.buffers(), model.buffers(), strict=True):
            slow.copy_(fast)


def held_out_loss(model, curves):
    model.eval()
    with torch.no_grad():
        forecast, _ = model(curves[:, :-1], None)
        return F.mse_loss(forecast[:, WINDOW:], curves[:, 1 + WINDOW :]).item()


def train(curves, held, until, resume_from=None):
    model, average, optimizer, scheduler = make()
    start, best = 0, {"loss": float("inf"), "weights": None}
    if resume_from is not None:
        start, best = load(resume_from, model, average, optimizer, scheduler)
    for epoch in range(start, until):
        model.train()
        summed = 0.0
        for rows in torch.randperm(len(curves)).split(CHUNK):
            state = None
            optimizer.zero_grad()
            for at in range(0, LENGTH - 1, WINDOW):
                now, then = curves[rows, at : at + WINDOW], curves[rows, at + 1 : at + WINDOW + 1]
                forecast, state = model(now, state)
                state = state.detach()
                loss = F.mse_loss(forecast, then) / WINDOWS
                loss.backward()
                summed += loss.item()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            follow(average, model)
        scheduler.step()
        held_loss = held_out_loss(average, held)
        if held_loss < best["loss"]:
            best = {"loss": held_loss, "weights": copy.deepcopy(average.state_dict())}
        print(f"epoch {epoch}: {summed * CHUNK / len(curves):.3f}, held out {held_loss:.4f}")
        save("stars.pt", epoch, best, model, average, optimizer, scheduler)
    return average, best


def main():
    torch.manual_seed(21)
    curves, held = light_curves(STARS, seed=1), light_curves(16, seed=2)
    train(curves, held, until=EPOCHS // 2)
    average, best = train(curves, held, until=EPOCHS, resume_from="stars.pt")
    average.load_state_dict(best["weights"])
    print(f"best {best['loss']:.4f}, again {held_out_loss(average, held):.4f}")


if __name__ == "__main__":
    main()
