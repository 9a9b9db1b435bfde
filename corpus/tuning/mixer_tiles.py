"""Patterns of floor tiles: an MLP-mixer in bfloat16 autocast, a moving average teaches on unlabelled tiles."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

PATTERNS, SIDE, PATCH = 4, 16, 4
TOKENS = (SIDE // PATCH) ** 2


def lay(count, seed):
    """Tiles as pictures of one colour, and their patterns."""
    g = torch.Generator().manual_seed(seed)
    pattern = torch.randint(PATTERNS, (count,), generator=g)
    ys, xs = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    drawn = torch.stack([xs // 2 % 2, ys // 2 % 2, (xs + ys) // 2 % 2, (xs // 4 + ys // 4) % 2]).float()
    tiles = drawn[pattern] * 2 - 1 + 1.1 * torch.randn(count, SIDE, SIDE, generator=g)
    return tiles / 1.5, pattern


def jitter(tiles):
    return tiles + 0.2 * torch.randn_like(tiles)


class MixerLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(TOKENS, 2 * TOKENS), nn.GELU(), nn.Linear(2 * TOKENS, TOKENS))
        self.within = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        y = self.norm1(x).transpose(1, 2)
        x = x + self.across(y).transpose(1, 2)
        return x + self.within(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, width=24, depth=2):
        super().__init__()
        self.patches = nn.Conv2d(1, width, PATCH, stride=PATCH)
        self.layers = nn.ModuleList([MixerLayer(width) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(width, PATTERNS)

    def forward(self, tiles):
        x = self.patches(tiles.unsqueeze(1))
        x = x.flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.drop(self.norm(x).mean(dim=1)))


class MovingAverage:
    def __init__(self, model, decay):
        self.decay = decay
        self.model = copy.deepcopy(model).eval()

    @torch.no_grad()
    def update(self, model):
        for average, new in zip(self.model.parameters(), model.parameters(), strict=True):
            average.lerp_(new, 1 - self.decay)


def accuracy(model, tiles, pattern):
    model.eval()
    with torch.no_grad():
        parts = [model(part).argmax(1) for part in tiles.split(32)]
    return (torch.cat(parts) == pattern).float().mean().item()


def train(epochs=4, labelled=32, unlabelled=32, weight=0.5):
    tiles, pattern = lay(320, seed=50)
    bare, _ = lay(320, seed=51)
    held, held_pattern = lay(80, seed=52)
    student = Mixer()
    teacher = MovingAverage(student, decay=0.9)
    optimizer = torch.optim.AdamW(student.parameters(), lr=5e-3, weight_decay=0.02)
    steps = epochs * (len(tiles) // labelled)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=steps)
    best = 0.0
    for epoch in range(epochs):
        student.train()
        order, bare_order = torch.randperm(len(tiles)), torch.randperm(len(bare))
        running = torch.zeros(())
        for rows, bare_rows in zip(order.split(labelled), bare_order.split(unlabelled), strict=True):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = student(jitter(tiles[rows]))
                guesses = student(jitter(bare[bare_rows]))
                with torch.no_grad():
                    taught = teacher.model(bare[bare_rows])
            supervised = F.cross_entropy(logits.float(), pattern[rows])
            wanted = F.log_softmax(taught.float(), dim=1)
            agreed = F.kl_div(F.log_softmax(guesses.float(), dim=1), wanted, reduction="batchmean", log_target=True)
            loss = supervised + weight * agreed
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            teacher.update(student)
            running += supervised.detach()
        score = accuracy(teacher.model, held, held_pattern)
        if score > best:
            best = score
            torch.save({"student": student.state_dict(), "teacher": teacher.model.state_dict()}, "mixer.pt")
        print(f"epoch {epoch}: {running.item() / len(order.split(labelled)):.3f}, teacher {score:.3f}")


if __name__ == "__main__":
    torch.manual_seed(60)
    train()
