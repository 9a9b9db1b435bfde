import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)


class Walk:
    """An agent on a line: it gets a reward at the right end."""

    def reset(self):
        self.place, self.time = 0, 0
        return self.seen()

    def seen(self):
        return torch.tensor([self.place / 5, self.time / 10, 1.0])

    def step(self, action):
        self.place += 1 if action == 1 else -1
        self.time += 1
        done = self.time == 10 or self.place == 5
        return self.seen(), float(self.place == 5) - 0.01, done


class Policy(nn.Module):
    def __init__(self, inputs=3, width=16, actions=2):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(inputs, width), nn.ReLU())
        self.actor = nn.Linear(width, actions)
        self.value = nn.Linear(width, 1)

    def forward(self, state):
        h = self.trunk(state)
        return self.actor(h), self.value(h)


def discounted(rewards, gamma=0.95):
    total, found = 0.0, []
    for reward in reversed(rewards):
        total = reward + gamma * total
        found.insert(0, total)
    return torch.tensor(found)


env, policy = Walk(), Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
baseline = torch.zeros(())
for episode in range(4):
    state, done = env.reset(), False
    logs, values, rewards = [], [], []
    while not done:
        logits, value = policy(state)
        choice = Categorical(logits=logits)
        action = choice.sample()
        logs.append(choice.log_prob(action))
        values.append(value)
        state, reward, done = env.step(action.item())
        rewards.append(reward)
    returns = discounted(rewards)
    valued = torch.cat(values)
    advantage = returns - valued.detach()
    actor_loss = -(torch.stack(logs) * advantage).mean()
    value_loss = (returns - valued).square().mean()
    loss = actor_loss + 0.5 * value_loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
