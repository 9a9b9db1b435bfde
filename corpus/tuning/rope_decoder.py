"""A decoder with rotary positions and RMSNorm, written by hand: bf16 autocast, packed token rows, clipped AdamW."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(42)
VOCAB, CONTEXT, DIM, HEADS, LAYERS = 64, 24, 32, 4, 2
STEPS, BATCH, LR = 18, 8, 2e-3


def rotary_tables(length, dim, base=10000.0):
    inv_freq = 1.0 / base ** (torch.arange(0, dim, 2).float() / dim)
    angles = torch.outer(torch.arange(length).float(), inv_freq)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps).type_as(x) * self.weight


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq = nn.Linear(DIM, DIM, bias=False)
        self.wk = nn.Linear(DIM, DIM, bias=False)
        self.wv = nn.Linear(DIM, DIM, bias=False)
        self.wo = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q, k, v = (w(x).view(b, t, HEADS, DIM // HEADS).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(b, t, DIM))


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(DIM), RMSNorm(DIM)
        self.attention = Attention()
        self.gate = nn.Linear(DIM, 2 * DIM, bias=False)
        self.up = nn.Linear(DIM, 2 * DIM, bias=False)
        self.down = nn.Linear(2 * DIM, DIM, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList([DecoderLayer() for _ in range(LAYERS)])
        self.norm = RMSNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)
        cos, sin = rotary_tables(CONTEXT, DIM // HEADS)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]])
        return self.head(self.norm(x))


def token_stream(n):
    generator = torch.Generator().manual_seed(9)
    moves = torch.randint(1, 4, (n,), generator=generator)
    return moves.cumsum(0) % VOCAB


def sample_rows(stream):
    starts = torch.randint(0, len(stream) - CONTEXT - 2, (BATCH,)).tolist()
    rows = torch.stack([stream[s : s + CONTEXT + 1] for s in starts])
    inputs, targets = rows[:, :-1], rows[:, 1:]
    return inputs, targets


stream = token_stream(5000)
train_tokens, val_tokens = stream[:4500], stream[4500:]
model = Decoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.1)
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=4)
model.train()
for step in range(STEPS):
    inputs, targets = sample_rows(train_tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(inputs)
        loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    warmup.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 6 == 5:
        model.eval()
        with torch.no_grad():
            inputs, targets = sample_rows(val_tokens)
            val = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        model.train()
        print(f"step {step} loss {loss.item():.4f} val {val.item():.4f} norm {norm.item():.3f}")
