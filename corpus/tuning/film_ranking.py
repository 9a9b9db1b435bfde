"""Films to watch next: users and films in two towers, pairs ranked against films not seen, ratings predicted."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

USERS, FILMS, GENRES, TASTE = 120, 90, 6, 8

rng = np.random.default_rng(13)
torch.manual_seed(13)

# Who watched what: tastes decide, and the genre of a film is a part of what it is.
genre = rng.integers(0, GENRES, FILMS)
film_taste = rng.normal(0, 1, (GENRES, TASTE))[genre] + 0.4 * rng.normal(0, 1, (FILMS, TASTE))
user_taste = rng.normal(0, 1, (USERS, TASTE))
liking = user_taste @ film_taste.T / TASTE**0.5 + 0.3 * rng.normal(0, 1, (USERS, FILMS))
ranked = np.argsort(-liking, axis=1)
watched = ranked[:, :16].copy()
for row in watched:
    rng.shuffle(row)
held_film = watched[:, 0]
seen = np.zeros((USERS, FILMS), dtype=bool)
np.put_along_axis(seen, watched[:, 1:], True, axis=1)
users = np.repeat(np.arange(USERS), watched.shape[1] - 1)
films = watched[:, 1:].reshape(-1)
ratings = liking[users, films]
ratings = ((ratings - ratings.mean()) / ratings.std()).astype(np.float32)


class Tower(nn.Module):
    def __init__(self, size, extra, width):
        super().__init__()
        self.embed = nn.Embedding(size, width)
        self.extra = nn.Embedding(extra, width) if extra else None
        self.body = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, width))

    def forward(self, index, kind=None):
        x = self.embed(index)
        if self.extra is not None:
            x = x + self.extra(kind)
        return x + self.body(x)


class Ranker(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.user = Tower(USERS, 0, width)
        self.film = Tower(FILMS, GENRES, width)
        self.bias = nn.Embedding(FILMS, 1)
        nn.init.zeros_(self.bias.weight)
        self.rating = nn.Linear(2 * width, 1)
        self.scale = width**-0.5

    def forward(self, user, film, kind):
        u, f = self.user(user), self.film(film, kind)
        score = (u * f).sum(-1) * self.scale + self.bias(film).squeeze(-1)
        rating = self.rating(torch.cat([u, f], dim=-1)).squeeze(-1)
        return score, rating


def unseen(of):
    """A film for each user that they did not watch."""
    drawn = rng.integers(0, FILMS, len(of))
    while seen[of, drawn].any():
        again = seen[of, drawn]
        drawn[again] = rng.integers(0, FILMS, again.sum())
    return drawn


def tensors(*arrays):
    return [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]


model = Ranker()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[60, 90], gamma=0.5)
size, step = 150, 0
while step < 108:
    model.train()
    order = rng.permutation(len(users))
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        other_films = unseen(users[rows])
        user, film, kind, rating = tensors(users[rows], films[rows], genre[films[rows]], ratings[rows])
        other, other_kind = tensors(other_films, genre[other_films])
        score, guess = model(user, film, kind)
        other_score, _ = model(user, other, other_kind)
        ranking = -F.logsigmoid(score - other_score).mean()
        rated = ((guess - rating) ** 2).mean()
        loss = ranking + 0.2 * rated
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        step += 1

    model.eval()
    hits = 0
    with torch.no_grad():
        every, kinds = tensors(np.arange(FILMS), genre)
        for user in range(USERS):
            scores, _ = model(torch.full((FILMS,), user), every, kinds)
            scores[torch.from_numpy(seen[user])] = -torch.inf
            hits += int(held_film[user] in scores.topk(10).indices)
    print(f"step {step}: loss {loss.item():.3f}, rated {rated.item():.3f}, {hits / USERS:.2f} in the first ten")

torch.save(model.state_dict(), "ranker.pt")
