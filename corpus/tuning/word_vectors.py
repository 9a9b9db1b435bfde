"""Skip-gram with negative sampling: sparse gradients, two tables, pairs from a sliding window."""

import collections

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

TOPICS, PER_TOPIC = 6, 10


def text(sentences, rng):
    """Sentences that stay with one topic."""
    return [rng.integers(0, TOPICS) * PER_TOPIC + rng.integers(0, PER_TOPIC, 8) for _ in range(sentences)]


class Pairs(Dataset):
    def __init__(self, sentences, window=2):
        pairs = []
        for words in sentences:
            for i, center in enumerate(words):
                around = [*words[max(0, i - window) : i], *words[i + 1 : i + 1 + window]]
                pairs += [(center, near) for near in around]
        self.pairs = torch.tensor(np.array(pairs))
        counts = collections.Counter(word for words in sentences for word in words.tolist())
        self.noise = torch.tensor([counts.get(w, 0) for w in range(TOPICS * PER_TOPIC)]).float() ** 0.75

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return self.pairs[i, 0], self.pairs[i, 1]


class SkipGram(nn.Module):
    def __init__(self, words, dim=16):
        super().__init__()
        self.inner = nn.Embedding(words, dim, sparse=True)
        self.outer = nn.Embedding(words, dim, sparse=True)
        nn.init.normal_(self.inner.weight, std=0.3)
        nn.init.zeros_(self.outer.weight)

    def forward(self, center, others):
        return (self.outer(others) @ self.inner(center).unsqueeze(-1)).squeeze(-1)


def same_topic(vectors):
    """How often the nearest other word is of the same topic."""
    unit = F.normalize(vectors, dim=1)
    near = (unit @ unit.T).fill_diagonal_(-2).argmax(1)
    return (near // PER_TOPIC == torch.arange(len(near)) // PER_TOPIC).float().mean().item()


def main(negatives=5):
    torch.manual_seed(7)
    data = Pairs(text(120, np.random.default_rng(7)))
    loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=True)
    model = SkipGram(TOPICS * PER_TOPIC)
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=2e-2)
    for epoch in range(2):
        losses = []
        for center, near in loader:
            far = torch.multinomial(data.noise, len(center) * negatives, replacement=True).view(-1, negatives)
            scores = model(center, torch.cat([near.unsqueeze(1), far], 1))
            truth = torch.zeros_like(scores)
            truth[:, 0] = 1
            loss = F.binary_cross_entropy_with_logits(scores, truth, reduction="sum") / len(center)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: {np.mean(losses):.3f}, same topic {same_topic(model.inner.weight.detach()):.2f}")
    np.save("vectors.npy", model.inner.weight.detach().numpy())


if __name__ == "__main__":
    main()
