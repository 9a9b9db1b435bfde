"""Data with a state: a buffer of states, to which every update adds what it has drawn, moved a little."""

import torch
from torch import nn

from surefoot import Recipe


class Replay:
    def __init__(self):
        self.states, self.count = torch.randn(10_000, 4), 64

    def batch(self, number, size):
        drawn = torch.randint(0, min(self.count, len(self.states)), (size,))
        return {"states": self.states[drawn], "buffer": self}

    def add(self, states):
        at = torch.arange(self.count, self.count + len(states)) % len(self.states)
        self.states[at], self.count = states, self.count + len(states)

    def state_dict(self):
        return {"states": self.states, "count": self.count}

    def load_state_dict(self, state):
        self.states, self.count = state["states"], state["count"]


def update(network, optimizer, batch):
    states = batch["states"]
    loss = nn.functional.mse_loss(network(states).squeeze(1), states.norm(dim=1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    batch["buffer"].add(states + 0.1 * torch.randn(len(states), 4))
    return loss


def replay(lr: float = 0.01) -> Recipe:
    return Recipe(
        model=lambda: nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)),
        data=Replay,
        step=update,
        optimizer=lambda network: torch.optim.Adam(network.parameters(), lr=lr),
        micro_batch_size=16,
        max_steps=100,
    )
