"""Tomorrow's temperature at five stations: a stateful LSTM over long series, truncated, stopped and resumed."""

import math
import os

import numpy as np
import torch
from torch import nn

STATIONS, SPAN, CHANNELS, HALF, EPOCHS = 5, 20, 3, 3, 6


def climate(days, seed):
    """(days, stations, channels): temperature, pressure, humidity, in physical units."""
    rng = np.random.default_rng(seed)
    day = np.arange(days)[:, None]
    season = 10 + 9 * np.sin(2 * math.pi * (day + 40 * np.arange(STATIONS)) / 90)
    front = np.zeros((days, STATIONS))
    for t in range(1, days):
        front[t] = 0.8 * front[t - 1] + rng.normal(0, 1.2, STATIONS)
    temperature = season + front + rng.normal(0, 0.4, (days, STATIONS))
    pressure = 1015 - 4 * np.roll(front, -1, axis=0) + rng.normal(0, 1, (days, STATIONS))
    humidity = 60 - 2 * front + rng.normal(0, 4, (days, STATIONS))
    return np.stack([temperature, pressure, humidity], axis=-1)


class Forecaster(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.lstm = nn.LSTM(CHANNELS, hidden, num_layers=2, batch_first=True, dropout=0.1)
        self.station = nn.Parameter(torch.zeros(STATIONS, hidden))
        self.out = nn.Linear(hidden, 1)

    def forward(self, x, state=None):
        y, state = self.lstm(x, state)
        return self.out(torch.tanh(y + self.station[:, None])).squeeze(-1), state


class Run:
    def __init__(self):
        raw = climate(462, seed=12)
        train, test = raw[:361], raw[361:]
        self.mean, self.std = train.mean((0, 1)), train.std((0, 1))
        self.train_x, self.train_y = self.windows(train)
        self.test_x, self.test_y = self.windows(test)
        self.model = Forecaster()
        self.opt = torch.optim.RMSprop(self.model.parameters(), lr=4e-3)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, T_max=EPOCHS, eta_min=2e-4)
        self.epoch = 0
        self.curve = []

    def windows(self, raw):
        z = torch.tensor((raw - self.mean) / self.std, dtype=torch.float32).transpose(0, 1)
        return z[:, :-1], z[:, 1:, 0]

    def spans(self, x, y):
        for start in range(0, x.shape[1], SPAN):
            yield x[:, start : start + SPAN], y[:, start : start + SPAN]

    def train_epoch(self):
        self.model.train()
        state = None
        total, steps = 0.0, 0
        for x, y in self.spans(self.train_x, self.train_y):
            guess, state = self.model(x, state)
            state = tuple(part.detach() for part in state)
            loss = nn.functional.mse_loss(guess, y)
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            total += loss.item() * y.numel()
            steps += y.numel()
        self.curve.append(total / steps)
        self.sched.step()
        self.epoch += 1

    def test_error(self):
        """Mean absolute error in degrees; the state is carried through the whole series."""
        self.model.eval()
        errors, state = [], None
        with torch.no_grad():
            for x, y in self.spans(self.test_x, self.test_y):
                guess, state = self.model(x, state)
                errors.append((guess - y).abs())
        return torch.cat(errors, dim=1).mean().item() * self.std[0]

    def save(self, path):
        torch.save(
            {
                "model": self.model.state_dict(),
                "opt": self.opt.state_dict(),
                "sched": self.sched.state_dict(),
                "epoch": self.epoch,
                "curve": self.curve,
            },
            path,
        )

    def load(self, path):
        kept = torch.load(path)
        self.model.load_state_dict(kept["model"])
        self.opt.load_state_dict(kept["opt"])
        self.sched.load_state_dict(kept["sched"])
        self.epoch, self.curve = kept["epoch"], kept["curve"]


def main():
    torch.manual_seed(9)
    if os.path.exists("weather.pt"):
        os.remove("weather.pt")
    for stop in (HALF, EPOCHS):  # two jobs, as the queue grants them
        run = Run()
        if os.path.exists("weather.pt"):
            run.load("weather.pt")
        while run.epoch < stop:
            run.train_epoch()
            print(f"epoch {run.epoch}: {run.curve[-1]:.3f}, off by {run.test_error():.2f} degrees")
        run.save("weather.pt")


if __name__ == "__main__":
    main()
