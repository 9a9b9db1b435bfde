"""A plain loop: a DataLoader, five lines."""

import sys

import torch
from torch.utils.data import DataLoader

from watched.model import Model, Tokens
from watched.notes import Notes

torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Tokens(), batch_size=16, shuffle=True)
notes = Notes()
for batch, _ in zip(loader, range(int(sys.argv[2])), strict=False):
    optimizer.zero_grad()
    loss = model(**batch)["loss"]
    loss.backward()
    optimizer.step()
    notes(loss.item())
notes.keep()
