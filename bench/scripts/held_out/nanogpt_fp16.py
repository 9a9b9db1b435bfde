"""Trains a small GPT with rotary positions and RMSNorm: float16 with a scaler, accumulation, clipping, cosine, compile.

Needs numpy.
"""

import math
import os
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F

# -----------------------------------------------------------------------------
out_dir = "out-fp16"
eval_interval = 3
log_interval = 1
eval_iters = 2
always_save_checkpoint = True
gradient_accumulation_steps = 3
batch_size = 6
block_size = 128
n_layer = 4
n_head = 4
n_embd = 192
dropout = 0.1
learning_rate = 1e-3
max_iters = 5
weight_decay = 1e-1
beta1, beta2 = 0.9, 0.99
grad_clip = 1.0
warmup_iters, lr_decay_iters, min_lr = 2, 5, 1e-4
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = "float16" if device == "cuda" else "float32"
compile = True
config_keys = [k for k, v in globals().items() if not k.startswith("_") and isinstance(v, (int, float, bool, str))]
for arg in sys.argv[1:]:  # --key=value overrides a setting
    if arg.startswith("--") and "=" in arg:
        key, val = arg[2:].split("=", 1)
        assert key in config_keys, f"Unknown config key: {key}"
        globals()[key] = type(globals()[key])(eval(val)) if not isinstance(globals()[key], str) else val
config = {k: globals()[k] for k in config_keys}
# -----------------------------------------------------------------------------


@dataclass
class GPTConfig:
    block_size: int = 1024
    vocab_size: int = 50304
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    dropout: float = 0.0


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return y.type_as(x) * self.weight


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos + b * sin, b * cos - a * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n_head, self.dropout = c.n_head, c.dropout
        self.c_attn = nn.Linear(c.n_embd, 3 * c.n_embd, bias=False)
        self.c_proj = nn.Linear(c.n_embd, c.n_embd, bias=False)
        self.c_proj.SCALE_INIT = True
        half = c.n_embd // c.n_head // 2
        freq = 10000 ** (-torch.arange(half).float() / half)
        angle = torch.outer(torch.arange(c.block_size).float(), freq)
        self.register_buffer("cos", angle.cos()[None, None], persistent=False)
        self.register_buffer("sin", angle.sin()[None, None], persistent=False)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (q, k, v))
        cos, sin = self.cos[:, :, :T].to(q.dtype), self.sin[:, :, :T].to(q.dtype)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        drop = self.dropout if self.training else 0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=drop, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden = 8 * ((8 * c.n_embd // 3 + 7) // 8)
        self.w1 = nn.Linear(c.n_embd, hidden, bias=False)
        self.w3 = nn.Linear(c.n_embd, hidden, bias=False)
        self.w2 = nn.Linear(hidden, c.n_embd, bias=False)
        self.w2.SCALE_INIT = True

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1, self.attn = RMSNorm(c.n_embd), Attention(c)
        self.ln_2, self.mlp = RMSNorm(c.n_embd), MLP(c)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.wte = nn.Embedding(c.vocab_size, c.n_embd)
        self.drop = nn.Dropout(c.dropout)
        self.h = nn.ModuleList([Block(c) for _ in range(c.n_layer)])
        self.ln_f = RMSNorm(c.n_embd)
        self.lm_head = nn.Linear(c.n_embd, c.vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight
        self.apply(self._init_weights)

    def _init_weights(self, m):
        if isinstance(m, nn.Linear):
            std = 0.02 * ((2 * self.config.n_layer) ** -0.5 if hasattr(m, "SCALE_INIT") else 1)
            torch.nn.init.normal_(m.weight, mean=0.0, std=std)
        elif isinstance(m, nn.Embedding):
            torch.nn.init.normal_(m.weight, mean=0.0, std=0.02)

    def forward(self, idx, targets=None):
        x = self.drop(self.wte(idx))
        for block in self.h:
            x = block(x)
        x = self.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = 30 * torch.tanh(self.lm_head(x) / 30)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)).float(), targets.view(-1))

    def configure_optimizers(self, device_type):
        named = {n: p for n, p in self.named_parameters() if p.requires_grad}
        decay = [p for p in named.values() if p.dim() >= 2]
        nodecay = [p for p in named.values() if p.dim() < 2]
        print(f"num decayed parameters: {sum(p.numel() for p in decay):,}")
        groups = [{"params": decay, "weight_decay": weight_decay}, {"params": nodecay, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=learning_rate, betas=(beta1, beta2), fused=device_type == "cuda")

    @torch.no_grad()
    def generate(self, idx, new, temperature=1.0, top_k=None):
        for _ in range(new):
            logits, _ = self(idx[:, -self.config.block_size :])
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                v, _ = torch.topk(logits, top_k)
                logits[logits < v[:, [-1]]] = -float("Inf")
            idx = torch.cat((idx, torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)), dim=1)
        return idx


os.makedirs(out_dir, exist_ok=True)
torch.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
device_type = "cuda" if "cuda" in device else "cpu"
ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
ctx = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type, dtype=ptdtype)

rng = np.random.default_rng(1337)
vocab_size = 2048
np.concatenate([rng.zipf(1.3, 60000) % vocab_size]).astype(np.uint16).tofile(os.path.join(out_dir, "train.bin"))


def get_batch():
    data = np.memmap(os.path.join(out_dir, "train.bin"), dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy((data[i : i + block_size]).astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy((data[i + 1 : i + 1 + block_size]).astype(np.int64)) for i in ix])
    if device_type == "cuda":
        x, y = x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    else:
        x, y = x.to(device), y.to(device)
    return x, y


raw_model = GPT(GPTConfig(block_size, vocab_size, n_layer, n_head, n_embd, dropout)).to(device)
scaler = torch.amp.GradScaler("cuda", enabled=(dtype == "float16"))
optimizer = raw_model.configure_optimizers(device_type)
model = torch.compile(raw_model) if compile and device_type == "cuda" else raw_model


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = torch.zeros(eval_iters)
    for k in range(eval_iters):
        with ctx:
            _, loss = model(*get_batch())
        losses[k] = loss.item()
    model.train()
    return losses.mean()


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    if it > lr_decay_iters:
        return min_lr
    ratio = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


X, Y = get_batch()
t0, best_val_loss = time.time(), 1e9
for iter_num in range(max_iters):
    lr = get_lr(iter_num)
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr
    if iter_num and iter_num % eval_interval == 0:
        val = estimate_loss()
        print(f"step {iter_num}: val loss {val:.4f}")
        if val < best_val_loss or always_save_checkpoint:
            best_val_loss = val
            checkpoint = {"model": raw_model.state_dict(), "optimizer": optimizer.state_dict(), "config": config}
            torch.save(checkpoint, os.path.join(out_dir, "ckpt.pt"))
    for _ in range(gradient_accumulation_steps):
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch()
        scaler.scale(loss).backward()
    if grad_clip != 0.0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(raw_model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    dt, t0 = time.time() - t0, time.time()
    if iter_num % log_interval == 0:
        lossf = loss.item() * gradient_accumulation_steps
        print(f"iter {iter_num}: loss {lossf:.4f}, lr {lr:.2e}, time {dt * 1000:.2f}ms, scale {scaler.get_scale()}")
raw_model.eval()
print(raw_model.generate(torch.zeros((1, 1), dtype=torch.long, device=device), 6, top_k=20)[0].tolist())
