"""The next sample of a hum, as one of 32 levels: dilated causal convolutions over windows of a long recording."""

import torch
import torch.nn.functional as F
from torch import nn

LEVELS, WINDOW = 32, 48


def record(samples, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(samples) * 0.35
    drift = torch.cumsum(0.05 * torch.randn(samples, generator=g), dim=0)
    wave = torch.sin(t + drift) + 0.4 * torch.sin(2.1 * t + 1.0) + 0.03 * torch.randn(samples, generator=g)
    wave = wave / 1.5
    squeezed = torch.sign(wave) * torch.log1p(15 * wave.abs()) / torch.log(torch.tensor(16.0))
    return ((squeezed.clamp(-1, 1) + 1) / 2 * (LEVELS - 1)).round().long()


class CausalConv(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.left = dilation
        self.conv = nn.Conv1d(channels, 2 * channels, kernel_size=2, dilation=dilation)
        self.skip = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        value, gate = self.conv(F.pad(x, (self.left, 0))).chunk(2, dim=1)
        h = torch.tanh(value) * torch.sigmoid(gate)
        return x + self.skip(h), h


class Hum(nn.Module):
    def __init__(self, channels=24):
        super().__init__()
        self.level = nn.Embedding(LEVELS, channels)
        self.convs = nn.ModuleList(CausalConv(channels, d) for d in (1, 2, 4, 8))
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(channels, 48, 1), nn.ReLU(), nn.Conv1d(48, LEVELS, 1))

    def forward(self, levels):
        x = self.level(levels).transpose(1, 2)
        total = 0
        for conv in self.convs:
            x, h = conv(x)
            total = total + h
        return self.head(total)  # (batch, levels, time)


def bits(model, recording):
    """Bits per sample over the whole recording, in pieces that do not overlap."""
    pieces = recording[: len(recording) // (WINDOW + 1) * (WINDOW + 1)].view(-1, WINDOW + 1)
    model.eval()
    with torch.no_grad():
        nats = F.cross_entropy(model(pieces[:, :-1]), pieces[:, 1:], reduction="mean")
    model.train()
    return (nats / torch.log(torch.tensor(2.0))).item()


def hum_on(model, start, samples):
    model.eval()
    out = start.clone()
    with torch.no_grad():
        for _ in range(samples):
            out = torch.cat([out, model(out[None, -WINDOW:])[0, :, -1].argmax()[None]])
    model.train()
    return out[len(start) :].tolist()


def main():
    torch.manual_seed(81)
    train, test = record(6000, seed=1), record(1500, seed=2)
    model = Hum()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    windows = train.unfold(0, WINDOW + 1, 1)
    for step, rows in enumerate(torch.randperm(len(windows))[: 100 * 16].split(16), start=1):
        piece = windows[rows]
        loss = F.cross_entropy(model(piece[:, :-1]), piece[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"{step}: loss {loss.item():.3f} test {bits(model, test):.2f} bits {hum_on(model, test[:WINDOW], 8)}")


if __name__ == "__main__":
    main()
