"""Fitted Q iteration on a stored log of a boat that has to hold its place in a current, with a target network."""

import copy

import numpy as np
import torch
from torch import nn

THRUST = np.array([-1.0, 0.0, 1.0])
GAMMA = 0.95


def move(state, action, rng):
    """Place and speed after a second, and the reward: being near the buoy without burning fuel."""
    place, speed = state[:, 0], state[:, 1]
    speed = 0.9 * speed + 0.2 * THRUST[action] - 0.05 + 0.02 * rng.standard_normal(len(state))
    place = np.clip(place + 0.3 * speed, -2, 2)
    reward = -np.abs(place) - 0.05 * (action != 1)
    return np.stack([place, speed], axis=1), reward


def random_states(count, rng):
    return np.stack([rng.uniform(-2, 2, count), rng.uniform(-0.8, 0.8, count)], axis=1)


def logged(boats, seconds, rng):
    """What boats did that were steered at random."""
    state, rows = random_states(boats, rng), []
    for _ in range(seconds):
        action = rng.integers(0, 3, boats)
        after, reward = move(state, action, rng)
        rows.append((state, action, reward, after))
        state = after
    columns = (np.concatenate(column) for column in zip(*rows, strict=True))
    states, actions, rewards, afters = columns
    return (
        torch.tensor(states, dtype=torch.float32),
        torch.tensor(actions),
        torch.tensor(rewards, dtype=torch.float32),
        torch.tensor(afters, dtype=torch.float32),
    )


def make_net():
    return nn.Sequential(nn.Linear(2, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 3))


def play(net, starts, seconds, seed):
    """Mean reward per second of the greedy policy."""
    rng = np.random.default_rng(seed)
    state, total = starts.copy(), 0.0
    net.eval()
    for _ in range(seconds):
        with torch.no_grad():
            action = net(torch.tensor(state, dtype=torch.float32)).argmax(dim=1).numpy()
        state, reward = move(state, action, rng)
        total += reward.mean()
    net.train()
    return total / seconds


def main():
    torch.manual_seed(40)
    rng = np.random.default_rng(40)
    states, actions, rewards, afters = logged(boats=60, seconds=40, rng=rng)
    starts = random_states(50, np.random.default_rng(41))

    q = make_net()
    target = copy.deepcopy(q).requires_grad_(False)
    optimizer = torch.optim.Adam(q.parameters(), lr=2e-3)
    batch_size, iterations = 80, 14
    print(f"at the start: {play(q, starts, 40, seed=42):.3f}")
    for iteration in range(iterations):
        target.load_state_dict(q.state_dict())
        order = torch.randperm(len(states))
        total = 0.0
        for rows in order.split(batch_size):
            with torch.no_grad():
                best_after = target(afters[rows]).max(dim=1).values
                wanted = rewards[rows] + GAMMA * best_after
            value = q(states[rows]).gather(1, actions[rows].unsqueeze(1)).squeeze(1)
            loss = nn.functional.smooth_l1_loss(value, wanted)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(q.parameters(), 5.0)
            optimizer.step()
            total += loss.item() * len(rows)
        print(f"iteration {iteration}: loss {total / len(states):.4f}, reward {play(q, starts, 40, seed=42):.3f}")


if __name__ == "__main__":
    main()
