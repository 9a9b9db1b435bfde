"""In nanoGPT's manner: batches cut by hand, accumulation, autocast, clipping, a schedule by hand."""

import math
import sys

import torch

from watched.model import Model, Tokens
from watched.notes import Notes

torch.manual_seed(0)
data = Tokens().tokens
model = Model()
decay = [p for p in model.parameters() if p.dim() >= 2]
rest = [p for p in model.parameters() if p.dim() < 2]
groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
accumulation, steps, notes = 2, int(sys.argv[2]), Notes()
for step in range(steps):
    for group in optimizer.param_groups:
        group["lr"] = 1e-3 * 0.5 * (1 + math.cos(math.pi * step / steps))
    total = torch.zeros(())
    for _ in range(accumulation):
        picked = torch.randint(len(data), (8,)).tolist()
        x = torch.stack([torch.from_numpy(data[index, :-1]) for index in picked])
        y = torch.stack([torch.from_numpy(data[index, 1:]) for index in picked])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x, y)["loss"] / accumulation
        loss.backward()
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    notes(total.item())
notes.keep()
