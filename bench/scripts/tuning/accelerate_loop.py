"""A transformer encoder with Accelerate: bf16, accumulation, clipping, gathered losses."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

set_seed(1)
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=3)
layer = nn.TransformerEncoderLayer(192, 4, 768, batch_first=True, dropout=0.1)
model = nn.Sequential(nn.Embedding(4000, 192), nn.TransformerEncoder(layer, 2), nn.Linear(192, 4000))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tokens = torch.randint(0, 4000, (96, 96))
loader = DataLoader(TensorDataset(tokens, tokens.roll(-1, 1)), batch_size=8, shuffle=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
for x, y in loader:
    with accelerator.accumulate(model):
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    accelerator.print(f"{accelerator.device} {accelerator.gather(loss.repeat(8)).mean().item():.3f}")
accelerator.wait_for_everyone()
accelerator.save(accelerator.unwrap_model(model).state_dict(), "encoder.pt")
