"""Programs with a copy beside a trained network: a Q network with its target, and an average of weights."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import numbers


def q_network(*extra: nn.Module, outputs: int = 2) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), *extra, nn.ReLU(), nn.Linear(8, outputs))


def states(step: int) -> torch.Tensor:
    return numbers(16, 4, seed=step)


class Agent:
    def __init__(self, *, joined: bool):
        self.online = q_network()
        self.target = self.online if joined else copy.deepcopy(self.online)


def follow(copied: nn.Module, source: nn.Module, share: float, *, buffers: bool = False) -> None:
    """Moves a copy towards its source."""
    with torch.no_grad():
        for mine, theirs in zip(copied.parameters(), source.parameters(), strict=True):
            mine.lerp_(theirs, share)
        for mine, theirs in zip(copied.buffers(), source.buffers(), strict=True) if buffers else ():
            mine.copy_(theirs)


def learned(online, target, after, *, steps: int = 16):
    """Q learning from random transitions, with a target network that `after` updates."""
    optimizer = torch.optim.SGD(online.parameters(), lr=0.05)
    with surefoot.watch() as seen:
        for step in range(steps):
            now, following = states(step), 0.9 * states(step) + 0.3
            with torch.no_grad():
                wanted = -now.abs().mean(1) + 0.9 * target(following).amax(1)
            optimizer.zero_grad()
            F.mse_loss(online(now)[:, step % 2], wanted).backward()
            optimizer.step()
            after(step)
    return seen.findings


def average(model, after, *, evaluated=None, steps: int = 16, loss=None, save=lambda: None):
    """A regression whose weights `after` averages, and an evaluation of `evaluated` every fourth step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    held_out, answer = numbers(32, 4, seed=99), lambda x: x.sum(1, keepdim=True).tanh()
    with surefoot.watch() as seen:
        for step in range(steps):
            x = states(step)
            optimizer.zero_grad()
            (loss(x) if loss is not None else F.mse_loss(model(x), answer(x))).backward()
            optimizer.step()
            after(step)
            if step % 4 == 3 and evaluated is not None:
                evaluated.eval()
                with torch.no_grad():
                    F.mse_loss(evaluated(held_out), answer(held_out)).item()
                evaluated.train()
        save()
    return seen.findings
