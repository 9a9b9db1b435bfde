"""Trains a video transformer under autocast, with non-reentrant checkpoints on every second block."""

import argparse
import functools

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

KEEP = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}


def policy(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op in KEEP else CheckpointPolicy.PREFER_RECOMPUTE


class Divided(nn.Module):
    """Attention over time, then over space, then an MLP."""

    def __init__(self, dim, heads):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.time = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.space = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, n, d = x.shape
        y = self.norms[0](x).transpose(1, 2).reshape(b * n, t, d)
        x = x + self.time(y, y, y, need_weights=False)[0].reshape(b, n, t, d).transpose(1, 2)
        y = self.norms[1](x).reshape(b * t, n, d)
        x = x + self.space(y, y, y, need_weights=False)[0].reshape(b, t, n, d)
        return x + self.mlp(self.norms[2](x))


class VideoNet(nn.Module):
    def __init__(self, dim=128, heads=4, depth=6, classes=30, selective=False):
        super().__init__()
        self.tubes = nn.Conv3d(3, dim, (2, 8, 8), (2, 8, 8))
        self.blocks = nn.ModuleList(Divided(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, classes)
        self.selective = selective

    def forward(self, clip):
        x = self.tubes(clip).flatten(3).permute(0, 2, 3, 1)
        for i, block in enumerate(self.blocks):
            if not self.training or i % 2:
                x = block(x)
            elif self.selective:
                context = functools.partial(create_selective_checkpoint_contexts, policy)
                x = checkpoint(block, x, use_reentrant=False, context_fn=context)
            else:
                x = checkpoint(block, x, use_reentrant=False)
        return self.head(x.mean((1, 2)))


parser = argparse.ArgumentParser()
parser.add_argument("--clips", type=int, default=2)
parser.add_argument("--frames", type=int, default=8)
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--selective", action="store_true")
opts = parser.parse_args()

torch.manual_seed(77)
accelerator = torch.accelerator.current_accelerator(check_available=True)
device = accelerator if accelerator is not None else torch.device("cpu")
net = VideoNet(selective=opts.selective).to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=5e-4)
for step in range(opts.steps):
    clip = torch.rand(opts.clips, 3, opts.frames, 64, 64)
    label = torch.randint(30, (opts.clips,))
    clip, label = clip.to(device), label.to(device)
    with torch.autocast(device_type=device.type, dtype=torch.bfloat16):
        loss = F.cross_entropy(net(clip), label)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(step, round(float(loss), 4))
