"""With Accelerate, accumulating over two micro-batches."""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader

from watched.model import Model, Tokens
from watched.notes import Notes

set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Tokens(), batch_size=8, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
notes = Notes()
for batch, _ in zip(loader, range(2 * int(sys.argv[2])), strict=False):
    with accelerator.accumulate(model):
        loss = model(**batch)["loss"]
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    if accelerator.sync_gradients:
        notes(loss.item())
notes.keep()
