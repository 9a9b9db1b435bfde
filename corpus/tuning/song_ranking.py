"""Songs ranked for listeners: two towers, pairwise loss against songs not heard, recall of the two songs kept back."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(61)
rng = np.random.default_rng(61)

LISTENERS, SONGS, GENRES, AGES = 200, 120, 6, 4
BATCH, EPOCHS, NEGATIVES, TOP = 64, 12, 4, 10

# Who heard what: listeners like genres, some songs are popular with all.
genre = rng.integers(0, GENRES, SONGS)
age = rng.integers(0, AGES, LISTENERS)
taste = rng.normal(0, 1, (LISTENERS, GENRES)) + rng.normal(0, 1.5, (AGES, GENRES))[age]
popular = rng.normal(0, 1, SONGS)
liking = taste[:, genre] + popular + rng.gumbel(0, 0.5, (LISTENERS, SONGS))
heard = np.argsort(-liking, axis=1)[:, :14]
for row in heard:
    rng.shuffle(row)
train_songs, held_songs = heard[:, :12], heard[:, 12:]
pairs = np.array([(listener, song) for listener in range(LISTENERS) for song in train_songs[listener]])
known = np.zeros((LISTENERS, SONGS), dtype=bool)
known[pairs[:, 0], pairs[:, 1]] = True


def unheard(listeners):
    """For each of the listeners some songs that they are not known to have heard."""
    drawn = rng.integers(0, SONGS, (len(listeners), NEGATIVES))
    while (clash := known[listeners[:, None], drawn]).any():
        drawn[clash] = rng.integers(0, SONGS, clash.sum())
    return drawn


class Tower(nn.Module):
    """A number of its own and a feature, through a small network, to a vector."""

    def __init__(self, count, kinds, features, width=16):
        super().__init__()
        self.own = nn.Embedding(count, width)
        self.kind = nn.Embedding(kinds, width)
        nn.init.normal_(self.own.weight, std=0.1)
        nn.init.normal_(self.kind.weight, std=0.1)
        self.register_buffer("features", torch.from_numpy(features))
        self.net = nn.Sequential(nn.Linear(2 * width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, numbers):
        x = torch.cat([self.own(numbers), self.kind(self.features[numbers])], dim=-1)
        return self.net(x)


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.listener = Tower(LISTENERS, AGES, age)
        self.song = Tower(SONGS, GENRES, genre)
        self.bias = nn.Parameter(torch.zeros(SONGS))

    def forward(self, listeners, songs):
        """Scores of songs (n, k) for listeners (n)."""
        vectors = self.song(songs)
        return (self.listener(listeners).unsqueeze(1) * vectors).sum(-1) + self.bias[songs]


def recall_and_gain(model):
    """Share of the songs kept back among the first ten of those not in training, and their discounted gain."""
    model.eval()
    with torch.no_grad():
        everyone, every_song = torch.arange(LISTENERS), torch.arange(SONGS).expand(LISTENERS, -1)
        scores = model(everyone, every_song)
        scores[torch.from_numpy(known)] = float("-inf")
        first = scores.topk(TOP, dim=1).indices
    hits = (first.unsqueeze(-1) == torch.from_numpy(held_songs).unsqueeze(1)).any(-1).double()
    discount = 1 / torch.log2(torch.arange(TOP) + 2.0)
    ideal = discount[: held_songs.shape[1]].sum()
    return hits.sum().item() / held_songs.size, ((hits * discount).sum(1) / ideal).mean().item()


model = Ranker()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-5)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
best_recall, best_state = 0.0, None
for epoch in range(EPOCHS):
    model.train()
    order = rng.permutation(len(pairs))
    total = 0.0
    for start in range(0, len(order), BATCH):
        rows = pairs[order[start : start + BATCH]]
        listeners, songs = rows[:, 0], rows[:, 1]
        candidates = np.concatenate([songs[:, None], unheard(listeners)], axis=1)
        scores = model(torch.from_numpy(listeners), torch.from_numpy(candidates))
        ahead = scores[:, :1] - scores[:, 1:]
        loss = -F.logsigmoid(ahead).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(rows)
    scheduler.step()
    recall, gain = recall_and_gain(model)
    if recall > best_recall:
        best_recall, best_state = recall, {name: value.clone() for name, value in model.state_dict().items()}
    print(
        f"{epoch + 1:2d} loss {total / len(pairs):.3f} (chance {math.log(2):.3f}) recall {recall:.3f} gain {gain:.3f}"
    )

torch.save(best_state, "ranker.pt")
