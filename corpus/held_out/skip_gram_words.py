"""Words that stand near each other: skip-gram with negative sampling and sparse gradients of the embeddings."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(12)
torch.manual_seed(12)

# ---- text: topics of twelve words each, and some words that go with all of them
TOPICS, PER_TOPIC, COMMON = 8, 12, 6
WORDS = TOPICS * PER_TOPIC + COMMON


def sentence():
    topic = rng.integers(TOPICS)
    words = topic * PER_TOPIC + rng.integers(0, PER_TOPIC, 9)
    common = TOPICS * PER_TOPIC + rng.integers(0, COMMON, 9)
    return np.where(rng.random(9) < 0.25, common, words)


sentences = [sentence() for _ in range(420)]
counts = np.bincount(np.concatenate(sentences), minlength=WORDS)

# ---- pairs within two places; frequent words are left out now and then
kept = np.minimum(1.0, np.sqrt(5e-3 / (counts / counts.sum())))
pairs = []
for words in sentences:
    words = [w for w in words if rng.random() < kept[w]]
    for i, centre in enumerate(words):
        pairs += [(centre, words[j]) for j in range(max(0, i - 2), min(len(words), i + 3)) if j != i]
pairs = torch.tensor(np.array(pairs))
noise = torch.tensor(counts**0.75, dtype=torch.float32)


class SkipGram(nn.Module):
    """Two tables: words as centres and words as neighbours; the second begins at zero, as in word2vec."""

    def __init__(self, words, size):
        super().__init__()
        self.centre = nn.Embedding(words, size, sparse=True)
        self.neighbour = nn.Embedding(words, size, sparse=True)
        nn.init.uniform_(self.centre.weight, -0.5 / size, 0.5 / size)
        nn.init.zeros_(self.neighbour.weight)

    def forward(self, centre, neighbour, others):
        c = self.centre(centre)
        near = (c * self.neighbour(neighbour)).sum(dim=1)
        far = torch.bmm(self.neighbour(others), c.unsqueeze(2)).squeeze(2)
        return -(F.logsigmoid(near) + F.logsigmoid(-far).sum(dim=1)).mean()


@torch.no_grad()
def purity(model):
    """How often the three nearest words are of the same topic."""
    table = F.normalize(model.centre.weight[: TOPICS * PER_TOPIC], dim=1)
    near = (table @ table.T).fill_diagonal_(-1).topk(3, dim=1).indices
    topic = torch.arange(TOPICS * PER_TOPIC) // PER_TOPIC
    return (topic[near] == topic[:, None]).float().mean().item()


model = SkipGram(WORDS, 24)
optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.02)
batch_size = 256
for epoch in range(4):
    order = torch.randperm(len(pairs))
    total = 0.0
    for rows in order.split(batch_size):
        centre, neighbour = pairs[rows].unbind(dim=1)
        others = torch.multinomial(noise, len(rows) * 5, replacement=True).view(len(rows), 5)
        loss = model(centre, neighbour, others)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(rows)
    print(f"epoch {epoch}: loss {total / len(pairs):.4f} purity {purity(model):.3f}")
np.save("words.npy", model.centre.weight.detach().numpy())
