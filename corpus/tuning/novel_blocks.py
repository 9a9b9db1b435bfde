"""A character model of one long text cut into blocks, as nanoGPT does it: blocks begin anywhere and run across
paragraphs on purpose. Tied embedding, decay groups, bf16 autocast, samples between evaluations."""

import math

import torch
import torch.nn as nn
from torch.nn import functional as F

# ------------------------------------------------------------ settings
block_size, batch_size = 32, 12
n_embd, n_head, n_layer = 32, 4, 2
max_iters, eval_interval, eval_iters = 75, 25, 4
learning_rate, warmup_iters, min_lr = 6e-3, 8, 6e-4
torch.manual_seed(1337)


# ------------------------------------------------------------ text
def write_novel(paragraphs):
    g = torch.Generator().manual_seed(8)
    who = ["anna", "the baker", "old tom", "a sailor", "my aunt"]
    did = ["walked to", "sang about", "forgot", "painted", "looked for"]
    what = ["the harbour", "a red door", "the long winter", "his ship", "some bread"]

    def pick(words):
        return words[int(torch.randint(0, len(words), (1,), generator=g))]

    sentences = [f"{pick(who)} {pick(did)} {pick(what)}." for _ in range(paragraphs * 3)]
    return "\n".join(" ".join(sentences[i : i + 3]) for i in range(0, len(sentences), 3))


text = write_novel(220)
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text], dtype=torch.long)
n = int(0.9 * len(data))
splits = {"train": data[:n], "val": data[n:]}


def get_batch(split):
    source = splits[split]
    ix = torch.randint(len(source) - block_size, (batch_size,))
    x = torch.stack([source[i : i + block_size] for i in ix])
    y = torch.stack([source[i + 1 : i + block_size + 1] for i in ix])
    return x, y


# ------------------------------------------------------------ model
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=False)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(C, dim=2)
        q, k, v = (z.view(B, T, n_head, C // n_head).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(len(chars), n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList(Block() for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, len(chars), bias=False)
        self.apply(self._init)
        self.lm_head.weight = self.wte.weight

    def _init(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x)).float()
        loss = None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss

    @torch.no_grad()
    def generate(self, idx, tokens):
        for _ in range(tokens):
            logits, _ = self(idx[:, -block_size:])
            idx = torch.cat([idx, torch.multinomial(F.softmax(logits[:, -1], dim=-1), 1)], dim=1)
        return idx


@torch.no_grad()
def estimate_loss():
    model.eval()
    out = {s: sum(model(*get_batch(s))[1].item() for _ in range(eval_iters)) / eval_iters for s in splits}
    model.train()
    return out


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return min_lr + 0.5 * (1 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


model = GPT()
decay = [p for p in model.parameters() if p.dim() >= 2]
no_decay = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}], lr=learning_rate
)
for it in range(max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(it)
    if it % eval_interval == 0:
        losses = estimate_loss()
        sample = "".join(chars[i] for i in model.generate(torch.zeros(1, 1, dtype=torch.long), 20)[0])
        print(f"{it}: train {losses['train']:.3f} val {losses['val']:.3f} {sample!r}")
    xb, yb = get_batch("train")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, loss = model(xb, yb)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print(f"end: {estimate_loss()}")
