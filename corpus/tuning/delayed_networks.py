"""Deep Q-learning on a small pond: replay of what was seen, and a second network that follows late."""

import copy
import random
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn

SIZE, ACTIONS, GAMMA, BATCH, LATE = 5, 4, 0.9, 32, 20
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))


class Pond:
    """A boat on a grid; the pier is in one corner, two cells are reeds."""

    def reset(self) -> torch.Tensor:
        self.place, self.time = (random.randrange(SIZE), random.randrange(2)), 0
        return self.view()

    def view(self) -> torch.Tensor:
        seen = torch.zeros(2 * SIZE)
        seen[self.place[0]] = seen[SIZE + self.place[1]] = 1.0
        return seen

    def step(self, action: int) -> tuple[torch.Tensor, float, bool, bool]:
        move = MOVES[action]
        self.place = tuple(min(max(p + m, 0), SIZE - 1) for p, m in zip(self.place, move, strict=True))
        self.time += 1
        if self.place == (SIZE - 1, SIZE - 1):
            return self.view(), 1.0, True, False
        reward = -0.3 if self.place in ((2, 2), (1, 3)) else -0.02
        return self.view(), reward, False, self.time >= 20


def make_network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2 * SIZE, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, ACTIONS))


@torch.no_grad()
def act(network: nn.Module, seen: torch.Tensor, curiosity: float) -> int:
    if random.random() < curiosity:
        return random.randrange(ACTIONS)
    return network(seen).argmax().item()


def drive(network: nn.Module, pond: Pond, trips: int = 10) -> float:
    """Mean return of trips without curiosity."""
    total = 0.0
    for _ in range(trips):
        seen, over = pond.reset(), False
        while not over:
            seen, reward, done, late = pond.step(act(network, seen, 0.0))
            total, over = total + reward, done or late
    return total / trips


def main() -> None:
    random.seed(2)
    torch.manual_seed(2)
    pond, replay = Pond(), deque(maxlen=2000)
    network = make_network()
    delayed = copy.deepcopy(network).requires_grad_(False)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    seen, updates = pond.reset(), 0
    for step in range(1, 901):
        action = act(network, seen, curiosity=max(0.1, 1 - step / 500))
        later, reward, done, late = pond.step(action)
        replay.append((seen, action, reward, later, float(done)))
        seen = pond.reset() if done or late else later
        if step < 100 or step % 4:
            continue
        before, actions, rewards, after, dones = zip(*random.sample(replay, BATCH), strict=True)
        values = network(torch.stack(before)).gather(1, torch.tensor(actions)[:, None]).squeeze(1)
        with torch.no_grad():
            best = delayed(torch.stack(after)).max(dim=1).values
        wanted = torch.tensor(rewards) + GAMMA * (1 - torch.tensor(dones)) * best
        loss = F.smooth_l1_loss(values, wanted)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimizer.step()
        updates += 1
        if updates % LATE == 0:
            delayed.load_state_dict(network.state_dict())
        if updates % 40 == 0:
            print(f"step {step} loss {loss.item():.4f} return {drive(network, Pond()):.3f}")
    torch.save({"network": network.state_dict(), "delayed": delayed.state_dict()}, "pond.pt")


if __name__ == "__main__":
    main()
