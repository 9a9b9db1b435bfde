"""How jammed is a town? Crossings and streets as a graph, attention along the streets, batches of several towns."""

import torch
import torch.nn.functional as F
from torch import nn

LEVELS, FEATURES = 3, 4


def make_town(level, g):
    """Traffic is higher in jammed towns, and more so at crossings with many streets."""
    crossings = int(torch.randint(6, 13, (), generator=g))
    ring = torch.arange(crossings)
    extra = torch.randint(crossings, (2, crossings // 2), generator=g)
    one_way = torch.cat([torch.stack([ring, ring.roll(1)]), extra], dim=1)
    streets = torch.cat([one_way, one_way.flip(0)], dim=1)
    degree = torch.bincount(streets[1], minlength=crossings).float()
    x = torch.randn(crossings, FEATURES, generator=g)
    x[:, 0] = 1.2 * (level - 1) * (degree - 3) / 2 + 0.4 * x[:, 0]
    x[:, 1] = (degree - 3) / 2
    return {"x": x, "streets": streets, "level": level}


def make_towns(count, seed):
    g = torch.Generator().manual_seed(seed)
    return [make_town(int(torch.randint(LEVELS, (), generator=g)), g) for _ in range(count)]


def join(towns):
    """One large graph without streets between towns."""
    sizes = torch.tensor([len(town["x"]) for town in towns])
    starts = sizes.cumsum(0) - sizes
    streets = torch.cat([town["streets"] + start for town, start in zip(towns, starts, strict=True)], dim=1)
    return {
        "x": torch.cat([town["x"] for town in towns]),
        "streets": streets,
        "town": torch.arange(len(towns)).repeat_interleave(sizes),
        "count": len(towns),
        "level": torch.tensor([town["level"] for town in towns]),
    }


class MeanOver(torch.autograd.Function):
    """Mean of the rows of each group, without a large intermediate."""

    @staticmethod
    def forward(ctx, rows, group, count):
        size = torch.bincount(group, minlength=count).clamp(min=1).to(rows.dtype)
        ctx.save_for_backward(group, size)
        return rows.new_zeros(count, rows.shape[1]).index_add(0, group, rows) / size[:, None]

    @staticmethod
    def backward(ctx, grad):
        group, size = ctx.saved_tensors
        return (grad / size[:, None])[group], None, None


def share_at(target, score, count):
    """Softmax of the scores of the streets that end at the same crossing."""
    score = torch.exp(score - score.max())
    total = score.new_zeros(count, score.shape[1]).index_add(0, target, score)
    return score / total[target]


class Round(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads = heads
        self.source = nn.Linear(width, width)
        self.score = nn.Linear(2 * width, heads)
        self.keep = nn.Linear(width, width)
        self.volume = nn.Parameter(torch.ones(heads, 1))
        self.norm = nn.LayerNorm(width)

    def forward(self, h, streets):
        source, target = streets
        score = F.leaky_relu(self.score(torch.cat([h[source], h[target]], dim=1)), 0.2)
        share = share_at(target, score, len(h))
        message = self.source(h)[source].view(len(source), self.heads, -1)
        message = (share[:, :, None] * message * self.volume).flatten(1)
        inbox = torch.zeros_like(h).index_add(0, target, message)
        return F.relu(self.norm(self.keep(h) + inbox))


class TownNet(nn.Module):
    def __init__(self, width=24, rounds=2):
        super().__init__()
        self.enter = nn.Linear(FEATURES, width)
        self.rounds = nn.ModuleList([Round(width) for _ in range(rounds)])
        self.drop = nn.Dropout(0.1)
        self.level = nn.Linear(width, LEVELS)

    def forward(self, batch):
        h = torch.tanh(self.enter(batch["x"]))
        for layer in self.rounds:
            h = h + layer(h, batch["streets"])
        town = MeanOver.apply(h, batch["town"], batch["count"])
        return self.level(self.drop(town))


def batches_of(towns, size, mixed):
    order = torch.randperm(len(towns)).tolist() if mixed else list(range(len(towns)))
    for start in range(0, len(order), size):
        yield join([towns[i] for i in order[start : start + size]])


def test(net, towns):
    net.eval()
    right = 0
    with torch.no_grad():
        for batch in batches_of(towns, 20, mixed=False):
            right += (net(batch).argmax(dim=1) == batch["level"]).sum().item()
    return right / len(towns)


def main():
    torch.manual_seed(60)
    train_towns, test_towns = make_towns(240, seed=1), make_towns(50, seed=2)
    net = TownNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=8e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)
    for epoch in range(5):
        net.train()
        total = 0.0
        for batch in batches_of(train_towns, 16, mixed=True):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(batch), batch["level"])
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 2.0)
            optimizer.step()
            total += loss.item() * batch["count"]
        schedule.step()
        print(f"{epoch}: loss {total / len(train_towns):.3f}, right {test(net, test_towns):.2f}")


if __name__ == "__main__":
    main()
