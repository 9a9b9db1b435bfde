"""Two-tower next-item retrieval, trained with sampled softmax (popularity negatives, logQ correction)."""
import argparse
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

HIST = 8


def make_log(n_users, n_items, length, rng):
    """Every user walks through items: near the taste of the user, near the last item, popular ones more."""
    z = rng.normal(size=(n_items, 6))
    taste = rng.normal(size=(n_users, 6))
    pop = -1.0 * np.log(np.arange(1, n_items + 1))
    rng.shuffle(pop)
    cat = (z[:, 0] > 0).astype(int) * 2 + (z[:, 1] > 0).astype(int)
    seqs = []
    for u in range(n_users):
        cur, seq = rng.integers(n_items), []
        for _ in range(length):
            logit = pop + 0.8 * z @ taste[u] + 1.2 * z @ z[cur] / 2.0
            p = np.exp(logit - logit.max())
            cur = rng.choice(n_items, p=p / p.sum())
            seq.append(cur + 1)  # item 0 is the padding
        seqs.append(seq)
    return np.array(seqs), np.concatenate([[0], cat + 1])


class Steps(Dataset):
    """(user, history before step t, item of step t)"""

    def __init__(self, seqs, steps):
        self.seqs, self.index = seqs, [(u, t) for u in range(len(seqs)) for t in steps]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        u, t = self.index[i]
        past = self.seqs[u][max(0, t - HIST):t]
        hist = np.zeros(HIST, dtype=np.int64)
        hist[HIST - len(past):] = past
        return u, hist, int(self.seqs[u][t])


class TwoTower(nn.Module):
    def __init__(self, n_users, n_items, item_cat, dim=24):
        super().__init__()
        self.user = nn.Embedding(n_users, dim)
        self.item = nn.Embedding(n_items + 1, dim, padding_idx=0)
        self.cat = nn.Embedding(5, dim, padding_idx=0)
        self.register_buffer("item_cat", item_cat)
        self.user_mlp = nn.Sequential(nn.Linear(2 * dim, 64), nn.ReLU(), nn.Linear(64, dim))
        self.item_mlp = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, dim))
        self.log_scale = nn.Parameter(torch.zeros(()))

    def encode_user(self, user, hist):
        real = (hist > 0).float().unsqueeze(-1)
        pooled = (self.item(hist) * real).sum(1) / real.sum(1).clamp(min=1)
        q = self.user_mlp(torch.cat([self.user(user), pooled], dim=-1))
        return F.normalize(q, dim=-1) * self.log_scale.exp()

    def encode_item(self, item):
        return F.normalize(self.item_mlp(self.item(item) + self.cat(self.item_cat[item])), dim=-1)


@torch.no_grad()
def recall(model, data, n_items, k=10):
    model.eval()
    items = model.encode_item(torch.arange(1, n_items + 1))
    hits = []
    for user, hist, target in DataLoader(data, batch_size=256):
        scores = model.encode_user(user, hist) @ items.T
        top = scores.topk(k, dim=1).indices
        hits.append((top == (target - 1).unsqueeze(1)).any(1).float())
    model.train()
    return torch.cat(hits).mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--users", type=int, default=200)
    ap.add_argument("--items", type=int, default=300)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--negatives", type=int, default=100)
    ap.add_argument("--lr", type=float, default=8e-3)
    args = ap.parse_args()

    torch.manual_seed(3)
    seqs, item_cat = make_log(args.users, args.items, 24, np.random.default_rng(3))
    train, valid, test = Steps(seqs, range(1, 20)), Steps(seqs, [20, 21]), Steps(seqs, [22, 23])

    counts = np.bincount(seqs[:, :20].ravel(), minlength=args.items + 1)[1:] + 1.0
    q = torch.tensor(counts / counts.sum(), dtype=torch.float32)
    log_q = q.log()

    model = TwoTower(args.users, args.items, torch.tensor(item_cat))
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.7)
    loader = DataLoader(train, batch_size=128, shuffle=True, drop_last=True)

    print(f"before training: recall@10 {recall(model, test, args.items):.4f}")
    best, best_state = -1.0, None
    for epoch in range(args.epochs):
        total = 0.0
        for user, hist, pos in loader:
            neg = torch.multinomial(q, args.negatives, replacement=True) + 1
            query = model.encode_user(user, hist)
            pos_logit = (query * model.encode_item(pos)).sum(-1) - log_q[pos - 1]
            neg_logit = query @ model.encode_item(neg).T - log_q[neg - 1]
            same = pos.unsqueeze(1) == neg.unsqueeze(0)
            neg_logit = neg_logit.masked_fill(same, -1e9)
            logits = torch.cat([pos_logit.unsqueeze(1), neg_logit], dim=1)
            loss = F.cross_entropy(logits, torch.zeros(len(pos), dtype=torch.long))
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        sched.step()
        val = recall(model, valid, args.items)
        if val > best:
            best, best_state = val, copy.deepcopy(model.state_dict())
        print(f"epoch {epoch}: loss {total / len(loader):.4f} valid recall@10 {val:.4f} scale {model.log_scale.exp().item():.2f}")
    model.load_state_dict(best_state)
    print(f"test recall@10 {recall(model, test, args.items):.4f}")


if __name__ == "__main__":
    main()
