"""Trains a GPT-2 of 124 million parameters with nanoGPT's own settings, on one GPU or, by torchrun, on eight.

Written from the description of github.com/karpathy/nanoGPT: 12 sequences of 1,024 tokens, bf16 autocast, fused AdamW,
clipping at 1, no dropout, no biases, a vocabulary padded to 50,304, tied embeddings. Its batches are random tokens.
"""

import argparse
import os
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=12)
parser.add_argument("--context", type=int, default=1024)
parser.add_argument("--accumulation", type=int, default=40, help="micro-batches of all ranks together")
parser.add_argument("--updates", type=int, default=600_000)
parser.add_argument("--no-compile", action="store_true")
parser.add_argument("--attention-written-out", action="store_true", help="as before February 2023")
args = parser.parse_args()
LAYERS, WIDTH, HEADS, VOCABULARY = 12, 768, 12, 50_304


fused = functional.scaled_dot_product_attention


def written_out(queries, keys, values):
    scores = queries @ keys.transpose(-2, -1) * queries.shape[-1] ** -0.5
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    return functional.softmax(scores.masked_fill(~seen, float("-inf")), dim=-1) @ values


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.queries_keys_values = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        split = self.queries_keys_values(x).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = written_out(*split) if args.attention_written_out else fused(*split, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention, self.before_mlp = (nn.LayerNorm(WIDTH, bias=False) for _ in range(2))
        self.attention = Attention()
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH, bias=False)
        )

    def forward(self, x):
        x = x + self.attention(self.before_attention(x))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(args.context, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.last = nn.LayerNorm(WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.tokens.weight = self.head.weight

    def forward(self, tokens, targets):
        at = torch.arange(tokens.shape[1], device=tokens.device)
        logits = self.head(self.last(self.blocks(self.tokens(tokens) + self.positions(at))))
        return logits, functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


ranks = int(os.environ.get("WORLD_SIZE", 1))
device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
torch.cuda.set_device(device)
if ranks > 1:
    torch.distributed.init_process_group("nccl")
accumulation = args.accumulation // ranks
torch.manual_seed(1337)

model = GPT().to(device)
decayed = [each for each in model.parameters() if each.dim() >= 2]
others = [each for each in model.parameters() if each.dim() < 2]
groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=True)
if not args.no_compile:
    model = torch.compile(model)
if ranks > 1:
    model = nn.parallel.DistributedDataParallel(model, device_ids=[int(os.environ["LOCAL_RANK"])])


def next_batch():
    window = torch.randint(VOCABULARY, (args.batch_size, args.context + 1))
    x, y = window[:, :-1].contiguous(), window[:, 1:].contiguous()
    return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)


tokens, targets = next_batch()
for update in range(args.updates):
    for micro in range(accumulation):
        last = micro == accumulation - 1
        with model.no_sync() if ranks > 1 and not last else nullcontext():
            with torch.autocast("cuda", torch.bfloat16):
                logits, loss = model(tokens, targets)
                loss = loss / accumulation
            tokens, targets = next_batch()
            loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if update % 10 == 0:
        print(update, loss.item() * accumulation)
