"""Made-up proverbs, several packed into each row: a small GPT that sees no other proverb than the one it is in."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

PAD, BOS, EOS = 0, 1, 2
WORDS = ["<pad>", "<bos>", "<eos>", "who", "the", "reaps", "sows", "keeps", "finds", "a", "and", "but", "never"]
THINGS = ["wind", "storm", "stone", "moss", "bird", "worm", "iron", "spark", "fool", "penny"]
VOCAB = WORDS + THINGS
ROW, WIDTH, HEADS, LAYERS, STEPS, BATCH = 56, 32, 4, 2, 40, 8


def write_proverbs(path, count, seed):
    """One stream of tokens; each proverb ends with <eos>. What is kept depends on what was sown."""
    rng = np.random.default_rng(seed)
    stream = []
    for _ in range(count):
        text = []
        for clause in range(rng.integers(1, 4)):
            thing = int(rng.integers(len(THINGS)))
            other = (3 * thing + 1) % len(THINGS)
            text += ["but"] if clause else []
            text += ["who", "sows", "the", THINGS[thing], "never", "keeps", "a", THINGS[other]]
        stream += [VOCAB.index(word) for word in text] + [EOS]
    np.array(stream, dtype=np.uint16).tofile(path)


def read_proverbs(path):
    stream = np.fromfile(path, dtype=np.uint16).astype(np.int64)
    ends = np.flatnonzero(stream == EOS) + 1
    return [np.concatenate([[BOS], part]) for part in np.split(stream, ends) if len(part)]


def pack(proverbs):
    """Rows of inputs, targets, places within the proverb and numbers of the proverb (0 is padding)."""
    rows, at = [], ROW
    for proverb in proverbs:
        size = len(proverb) - 1
        if at + size > ROW:
            rows.append(np.zeros((4, ROW), dtype=np.int64))
            rows[-1][0], rows[-1][1] = PAD, -100
            at = 0
        rows[-1][0, at : at + size] = proverb[:-1]
        rows[-1][1, at : at + size] = proverb[1:]
        rows[-1][2, at : at + size] = np.arange(size)
        rows[-1][3, at : at + size] = rows[-1][3].max() + 1
        at += size
    return torch.from_numpy(np.stack(rows))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(0.05)

    def forward(self, x, allowed):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        scores = scores.masked_fill(~allowed, float("-inf"))
        mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(b, t, WIDTH)
        x = x + self.drop(self.out(mixed))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class ProverbGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(len(VOCAB), WIDTH)
        self.places = nn.Embedding(ROW, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(VOCAB), bias=False)
        nn.init.normal_(self.words.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)
        self.head.weight = self.words.weight

    def forward(self, ids, places, segments):
        earlier = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
        same = segments[:, :, None] == segments[:, None, :]
        allowed = (earlier & same)[:, None]
        x = self.words(ids) + self.places(places)
        for block in self.blocks:
            x = checkpoint(block, x, allowed, use_reentrant=False)
        return self.head(self.norm(x))


def loss_of(model, rows):
    ids, targets, places, segments = rows.unbind(1)
    logits = model(ids, places, segments)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)


@torch.no_grad()
def perplexity(model, rows):
    model.eval()
    nats, tokens = 0.0, 0
    for part in rows.split(16):
        valid = (part[:, 1] != -100).sum().item()
        nats += loss_of(model, part).item() * valid
        tokens += valid
    model.train()
    return math.exp(nats / tokens)


def rate(step):
    return (step + 1) / 6 if step < 6 else 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step - 6) / (STEPS - 6)))


def train():
    torch.manual_seed(31)
    write_proverbs("proverbs.bin", 400, seed=1)
    proverbs = read_proverbs("proverbs.bin")
    distinct = sorted({tuple(p) for p in proverbs})
    held = {p for p in distinct[::8] if len(p) > 12}
    train_rows = pack([p for p in proverbs if tuple(p) not in held])
    held_rows = pack([np.array(p) for p in held])
    model = ProverbGPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3, betas=(0.9, 0.95), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    queue = []
    for step in range(STEPS):
        if not queue:
            queue = [chosen for chosen in torch.randperm(len(train_rows)).split(BATCH) if len(chosen) == BATCH]
        loss = loss_of(model, train_rows[queue.pop()])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 10 == 9:
            print(f"step {step + 1:3d} loss {loss.item():.3f} held out perplexity {perplexity(model, held_rows):.2f}")
    torch.save(model.state_dict(), "proverbs.pt")


if __name__ == "__main__":
    train()
