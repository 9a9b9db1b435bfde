"""Tokens go to the best of eight experts; a loss of its own spreads the load, some experts see nothing in a step."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(34)
WIDTH, EXPERTS = 16, 8


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, x):
        return self.outer(F.gelu(self.inner(x)))


class Switch(nn.Module):
    """One expert for each token, weighted by the gate."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList([Expert() for _ in range(EXPERTS)])

    def forward(self, x):
        flat = x.reshape(-1, WIDTH)
        odds = self.gate(flat).softmax(-1)
        weight, choice = odds.max(-1)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows = (choice == number).nonzero().squeeze(1)
            if len(rows):
                out = out.index_add(0, rows, weight[rows, None] * expert(flat[rows]))
        share = F.one_hot(choice, EXPERTS).float().mean(0)
        return x + out.view_as(x), EXPERTS * (share * odds.mean(0)).sum()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(40, WIDTH)
        self.first, self.second = Switch(), Switch()
        self.head = nn.Linear(WIDTH, 40)

    def forward(self, ids):
        x, balance_a = self.first(self.emb(ids))
        x, balance_b = self.second(x)
        return self.head(x), balance_a + balance_b


model = Model()
opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
data = torch.Generator().manual_seed(35)
for step in range(40):
    ids = torch.randint(0, 40, (4, 6), generator=data)
    logits, balance = model(ids)
    task = F.cross_entropy(logits.flatten(0, 1), (ids.flatten() * 7 + 3) % 40)
    opt.zero_grad()
    (task + 0.01 * balance).backward()
    opt.step()
    if step % 10 == 9:
        print(step + 1, task.item(), balance.item())
