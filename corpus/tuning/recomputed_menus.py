"""Filled-in dishes: a bidirectional encoder with recomputed blocks guesses hidden items of a menu; training is
stopped, saved and taken up again in the middle."""

import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

PAD, MASK, FIRST = 0, 1, 2
DISHES, COURSES = 24, 4
VOCAB = FIRST + DISHES


def menus(n, seed):
    """Each menu has a cuisine, which its dishes betray; 7 to 10 items, padded."""
    g = torch.Generator().manual_seed(seed)
    rows = torch.full((n, 10), PAD)
    for i in range(n):
        length = int(torch.randint(7, 11, (1,), generator=g))
        cuisine = int(torch.randint(0, 4, (1,), generator=g))
        course = torch.arange(length) * COURSES // length
        which = torch.randint(0, 3, (length,), generator=g)
        rows[i, :length] = FIRST + (cuisine * 6 + course + which) % DISHES
    return rows


def hide(rows, generator, share=0.25):
    """Inputs with hidden items, and targets that are -100 where nothing is hidden; at least one per menu."""
    real = rows != PAD
    draw = torch.rand(rows.shape, generator=generator).masked_fill(~real, 2.0)
    hidden = (draw < share) | (draw == draw.amin(dim=1, keepdim=True))
    return rows.masked_fill(hidden, MASK), rows.masked_fill(~hidden, -100)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, heads, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim), nn.Dropout(0.1))

    def forward(self, x, padding):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, key_padding_mask=padding, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class MenuModel(nn.Module):
    def __init__(self, dim=32, heads=4, depth=3):
        super().__init__()
        self.item = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.place = nn.Embedding(10, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, rows):
        padding = rows == PAD
        x = self.item(rows) + self.place.weight[: rows.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, padding, use_reentrant=False) if self.training else block(x, padding)
        return self.out(self.norm(x))


class Session:
    def __init__(self, rows, total_steps):
        self.rows = rows
        self.model = MenuModel()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=4e-3)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.05, total_iters=total_steps)
        self.generator = torch.Generator().manual_seed(15)
        self.step = 0

    def save(self, path):
        parts = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        state = {name: part.state_dict() for name, part in parts.items()}
        torch.save(state | {"step": self.step, "rng": self.generator.get_state()}, path)

    def load(self, path):
        state = torch.load(path, weights_only=True)
        for name in ("model", "optimizer", "scheduler"):
            getattr(self, name).load_state_dict(state[name])
        self.step = state["step"]
        self.generator.set_state(state["rng"])

    def run(self, until):
        self.model.train()
        while self.step < until:
            pick = torch.randint(0, len(self.rows), (24,), generator=self.generator)
            inputs, targets = hide(self.rows[pick], self.generator)
            loss = F.cross_entropy(self.model(inputs).flatten(0, 1), targets.flatten(), ignore_index=-100)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.step += 1
        return loss.item()

    @torch.no_grad()
    def accuracy(self, rows):
        self.model.eval()
        inputs, targets = hide(rows, torch.Generator().manual_seed(0))
        hidden = targets != -100
        return (self.model(inputs).argmax(dim=-1)[hidden] == targets[hidden]).float().mean().item()


torch.manual_seed(45)
train_rows, test_rows = menus(500, seed=1), menus(120, seed=2)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "menus.pt"
    session = Session(train_rows, total_steps=70)
    print(f"first part: loss {session.run(35):.3f} accuracy {session.accuracy(test_rows):.2f}")
    session.save(path)
    session = Session(train_rows, total_steps=70)
    session.load(path)
    print(f"second part: loss {session.run(70):.3f} accuracy {session.accuracy(test_rows):.2f}")
