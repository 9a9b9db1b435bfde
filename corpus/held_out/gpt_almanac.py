"""A small GPT on the lines of an almanac, character by character: accumulation, float16 autocast and a scaler."""

import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1789)
random.seed(1789)

# ---------------------------------------------------------------------------------------- settings
context = 24
batch_size = 4
accum_steps = 3
max_updates = 24
warmup_updates = 3
eval_every = 8
max_lr, min_lr = 1e-2, 1e-3
weight_decay = 0.05
grad_clip = 1.0
n_layer, n_head, n_embd, dropout = 2, 2, 32, 0.1
device = "cuda" if torch.cuda.is_available() else "cpu"
amp_dtype = torch.float16

# ---------------------------------------------------------------------------------------- text
MONTHS = ["January", "March", "May", "July", "September", "November"]
SKIES = {"January": "snow", "March": "wind", "May": "showers", "July": "sun", "September": "mist", "November": "frost"}
WORK = {"January": "mend nets", "March": "sow oats", "May": "shear sheep", "July": "cut hay", "September": "pick plums"}


def entry():
    month = random.choice(MONTHS)
    day = random.randint(1, 28)
    moon = ["new", "waxing", "full", "waning"][day // 7 % 4]
    tide, rises = random.randint(100, 999), random.randint(400, 799)
    return f"{day} {month} {rises}: {SKIES[month]}, {moon} moon, tide {tide}, {WORK.get(month, 'rest')}.\n"


text = "".join(entry() for _ in range(600))
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text])
split = int(0.9 * len(data))
train_data, val_data = data[:split], data[split:]


def get_batch(source):
    starts = torch.randint(len(source) - context - 1, (batch_size,))
    x = torch.stack([source[i : i + context] for i in starts])
    y = torch.stack([source[i + 1 : i + context + 1] for i in starts])
    return x.to(device), y.to(device)


# ---------------------------------------------------------------------------------------- model
class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(n_embd, 3 * n_embd)
        self.proj = nn.Linear(n_embd, n_embd)
        self.register_buffer("mask", torch.tril(torch.ones(context, context)).view(1, 1, context, context))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (z.view(B, T, n_head, C // n_head).transpose(1, 2) for z in self.qkv(x).split(C, dim=2))
        att = (q @ k.transpose(-2, -1)) / math.sqrt(C // n_head)
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        att = F.dropout(att, dropout, training=self.training)
        return self.proj((att @ v).transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention()
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd), nn.Dropout(dropout)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_emb = nn.Embedding(len(chars), n_embd)
        self.pos_emb = nn.Embedding(context, n_embd)
        self.blocks = nn.ModuleList([Block() for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, len(chars), bias=False)
        self.apply(self.init_weights)
        self.lm_head.weight = self.tok_emb.weight

    @staticmethod
    def init_weights(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.05)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, idx):
        x = self.tok_emb(idx) + self.pos_emb(torch.arange(idx.shape[1], device=idx.device))
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.ln_f(x))


model = GPT().to(device)
decayed = [p for p in model.parameters() if p.ndim >= 2]
others = [p for p in model.parameters() if p.ndim < 2]
groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=max_lr, betas=(0.9, 0.95))
scaler = torch.amp.GradScaler(device)


def rate(update):
    if update < warmup_updates:
        return (update + 1) / warmup_updates
    done = min(1.0, (update - warmup_updates) / (max_updates - warmup_updates))
    return (min_lr + 0.5 * (max_lr - min_lr) * (1 + math.cos(math.pi * done))) / max_lr


scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)


@torch.no_grad()
def estimate_loss(batches=4):
    model.eval()
    total = 0.0
    for _ in range(batches):
        x, y = get_batch(val_data)
        with torch.autocast(device, dtype=amp_dtype):
            logits = model(x)
        total += F.cross_entropy(logits.float().flatten(0, 1), y.flatten()).item()
    model.train()
    return total / batches


# ---------------------------------------------------------------------------------------- training
running_loss, seen = 0.0, 0
best = float("inf")
model.train()
for update in range(1, max_updates + 1):
    optimizer.zero_grad(set_to_none=True)
    for micro in range(accum_steps):
        x, y = get_batch(train_data)
        with torch.autocast(device, dtype=amp_dtype):
            logits = model(x)
        loss = F.cross_entropy(logits.float().flatten(0, 1), y.flatten())
        scaler.scale(loss / accum_steps).backward()
        running_loss += loss.item()
        seen += 1
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    if update % eval_every == 0:
        val_loss = estimate_loss()
        mean, lr = running_loss / seen, scheduler.get_last_lr()[0]
        print(f"update {update} mean loss {mean:.3f} val {val_loss:.3f} norm {norm:.2f} lr {lr:.5f}")
        if val_loss < best:
            best = val_loss
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
            torch.save(state | {"scheduler": scheduler.state_dict(), "update": update}, "almanac.pt")
print(f"best val loss {best:.3f}")
