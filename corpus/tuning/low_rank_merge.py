"""Adapters on a frozen text classifier, merged into its weights for evaluation and taken out again for training."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(40)


class Adapted(nn.Linear):
    def __init__(self, inputs, outputs, rank=3):
        super().__init__(inputs, outputs)
        self.left = nn.Parameter(torch.zeros(outputs, rank))
        self.right = nn.Parameter(torch.randn(rank, inputs) / inputs**0.5)
        self.merged = False

    def merge(self, into):
        if into != self.merged:
            with torch.no_grad():
                self.weight.add_(self.left @ self.right, alpha=1.0 if into else -1.0)
            self.merged = into

    def train(self, mode=True):
        self.merge(not mode)
        return super().train(mode)

    def forward(self, x):
        y = super().forward(x)
        return y if self.merged else y + x @ self.right.T @ self.left.T


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(60, 24, mode="mean")
        self.first, self.second = Adapted(24, 24), Adapted(24, 24)
        self.out = nn.Linear(24, 3)

    def forward(self, ids):
        x = self.words(ids)
        return self.out(F.relu(self.second(F.relu(self.first(x)))))


def batch(n, g):
    topic = torch.randint(3, (n,), generator=g)
    words = topic[:, None] * 20 + torch.randint(20, (n, 9), generator=g)
    anywhere = torch.randint(60, (n, 9), generator=g)
    return torch.where(torch.rand(n, 9, generator=g) < 0.4, words, anywhere), topic


model = Text()
for name, p in model.named_parameters():
    p.requires_grad_(name.endswith((".left", ".right")) or name.startswith("out."))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-2, weight_decay=0.0)
train_g, test_g = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
for step in range(45):
    ids, topic = batch(32, train_g)
    loss = F.cross_entropy(model(ids), topic)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 14:
        model.eval()
        with torch.no_grad():
            ids, topic = batch(100, test_g)
            print(step + 1, loss.item(), (model(ids).argmax(1) == topic).float().mean().item())
        model.train()
