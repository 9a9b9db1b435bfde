"""Activation checkpointing, an average of the weights, TensorBoard, checkpoints, and a second run that resumes."""

import os

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.tensorboard import SummaryWriter

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
path = "saved/last.pt"
os.makedirs("saved", exist_ok=True)


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        wide = [nn.Sequential(nn.Linear(384, 1536), nn.GELU(), nn.Dropout(0.1), nn.Linear(1536, 384)) for _ in range(4)]
        self.first, self.blocks, self.last = nn.Linear(64, 384), nn.ModuleList(wide), nn.Linear(384, 8)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.training else block(x))
        return self.last(x)


def train(steps: int, resume: bool) -> None:
    model = Deep().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
    start, best = 0, float("inf")
    if resume:
        saved = torch.load(path, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        start, best = saved["step"] + 1, saved["best"]
    with SummaryWriter("saved/log") as log:
        for step in range(start, steps):
            x, y = torch.randn(512, 64, device=device), torch.randn(512, 8).to(device)
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
            log.add_scalar("loss", loss, step)
            log.add_histogram("weights", model.first.weight, step)
            best = min(best, loss.item())
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "best": best}
            torch.save(state, path)
            print(step, f"{loss:.4f}", best)


train(2, resume=False)
train(4, resume=True)
