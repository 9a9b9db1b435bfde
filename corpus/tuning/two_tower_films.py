"""Films for viewers: two towers, negatives from the batch, soft targets of slow towers, halves with a scaler."""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CFG = {"users": 320, "films": 96, "genres": 6, "history": 8, "dim": 24, "batch": 64, "epochs": 6, "lr": 1e-2}
TEMPERATURE, SLOWNESS = 0.1, 0.95
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(23)
rng = np.random.default_rng(23)

# ---- who watched what: tastes over genres, and films that are seen more than others
genre = rng.integers(0, CFG["genres"], CFG["films"])
fame = 1 / (5 + rng.permutation(CFG["films"]))
taste = rng.dirichlet(np.full(CFG["genres"], 0.15), CFG["users"]) + 0.01
history = np.full((CFG["users"], CFG["history"]), -1)
pairs, held = [], []
for user in range(CFG["users"]):
    odds = taste[user][genre] * fame
    watched = rng.choice(CFG["films"], CFG["history"] + 4, replace=False, p=odds / odds.sum())
    known = rng.integers(4, CFG["history"] + 1)
    history[user, :known] = watched[:known]
    pairs += [(user, film) for film in watched[CFG["history"] : -1]]
    held.append(watched[-1])
history, genre = torch.tensor(history, device=device), torch.tensor(genre, device=device)
pairs, held = torch.tensor(np.array(pairs), device=device), torch.tensor(np.array(held), device=device)
counts = torch.bincount(pairs[:, 1], minlength=CFG["films"]).float()
log_share = ((counts + 1) / (counts + 1).sum()).log()


class Towers(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.film = nn.Embedding(CFG["films"], dim)
        self.genre = nn.Embedding(CFG["genres"], dim)
        self.look = nn.Linear(dim, 1)
        self.viewer_mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Dropout(0.1), nn.Linear(2 * dim, dim))
        self.film_mlp = nn.Sequential(nn.Linear(2 * dim, 2 * dim), nn.ReLU(), nn.Dropout(0.1), nn.Linear(2 * dim, dim))

    def viewers(self, films):
        seen = films >= 0
        each = self.film(films.clamp(min=0)) + self.genre(genre[films.clamp(min=0)])
        score = self.look(each).squeeze(-1).float()
        weight = score.masked_fill(~seen, float("-inf")).softmax(dim=1)
        return F.normalize(self.viewer_mlp((weight[..., None] * each).sum(dim=1)).float(), dim=1)

    def films(self, films):
        both = torch.cat([self.film(films), self.genre(genre[films])], dim=1)
        return F.normalize(self.film_mlp(both).float(), dim=1)


def score_batch(towers, batch):
    """Every viewer against every film of the batch; the same film elsewhere in the batch is no negative."""
    same = batch["film"][:, None] == batch["film"][None, :]
    other = ~torch.eye(len(same), dtype=torch.bool, device=device)
    scores = towers.viewers(batch["history"]) @ towers.films(batch["film"]).T / TEMPERATURE
    scores = scores.float() - log_share[batch["film"]]
    return scores.masked_fill(same & other, -1e4)


def batches():
    order = torch.randperm(len(pairs))
    for rows in order.split(CFG["batch"]):
        user, film = pairs[rows].unbind(dim=1)
        yield {"history": history[user], "film": film}


@torch.no_grad()
def evaluate(towers):
    """Share of viewers whose held film is among the first ten, films of the history left out; and its mean score."""
    towers.eval()
    hits, closeness = 0, 0.0
    films = towers.films(torch.arange(CFG["films"], device=device))
    for rows in torch.arange(CFG["users"], device=device).split(100):
        scores = towers.viewers(history[rows]) @ films.T
        closeness += scores.gather(1, held[rows, None]).sum().item()
        watched = F.one_hot(history[rows].clamp(min=0), CFG["films"]) * (history[rows] >= 0)[..., None]
        best = scores.masked_fill(watched.any(dim=1), -2.0).topk(10, dim=1).indices
        hits += (best == held[rows, None]).any(dim=1).sum().item()
    return hits / CFG["users"], closeness / CFG["users"]


model = Towers(CFG["dim"]).to(device)
slow = copy.deepcopy(model).eval().requires_grad_(False)
opt = torch.optim.AdamW(model.parameters(), lr=CFG["lr"], weight_decay=1e-2)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=CFG["epochs"] * -(-len(pairs) // CFG["batch"]))
scaler = torch.amp.GradScaler(device)

for epoch in range(CFG["epochs"]):
    model.train()
    total = 0.0
    for batch in batches():
        opt.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.float16):
            scores = score_batch(model, batch)
            with torch.no_grad():
                soft = score_batch(slow, batch).softmax(dim=1)
        target = torch.arange(len(scores), device=device)
        contrast = F.cross_entropy(scores, target)
        follow = F.kl_div(scores.log_softmax(dim=1), soft, reduction="batchmean")
        loss = contrast + 0.1 * follow
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(opt)
        scaler.update()
        sched.step()
        with torch.no_grad():
            for late, now in zip(slow.parameters(), model.parameters(), strict=True):
                late.lerp_(now, 1 - SLOWNESS)
        total += loss.item() * len(scores)
    recall, closeness = evaluate(model)
    print(f"epoch {epoch} loss {total / len(pairs):.3f} recall@10 {recall:.3f} closeness {closeness:.3f}")
    parts = {"model": model, "slow": slow, "opt": opt, "sched": sched, "scaler": scaler}
    torch.save({"epoch": epoch, **{name: part.state_dict() for name, part in parts.items()}}, "towers.pt")
