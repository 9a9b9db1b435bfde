"""Trains a two-part recommender: embedding bags with sparse gradients, and a dense tower, each with its own optimizer.

Needs numpy.
"""

import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(123)
rng = np.random.RandomState(123)

TABLES = [20000, 5000, 800, 60]
DIM = 32
DENSE = 13
dev = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")


class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb_l = nn.ModuleList()
        for n in TABLES:
            table = nn.EmbeddingBag(n, DIM, mode="sum", sparse=True)
            bound = np.sqrt(1 / n)
            table.weight.data = torch.tensor(rng.uniform(-bound, bound, size=(n, DIM)).astype(np.float32))
            self.emb_l.append(table)
        self.bot = nn.Sequential(nn.Linear(DENSE, 256), nn.ReLU(), nn.Linear(256, DIM), nn.ReLU())
        pairs = (len(TABLES) + 1) * len(TABLES) // 2
        self.top = nn.Sequential(nn.Linear(pairs + DIM, 256), nn.ReLU(), nn.Linear(256, 1), nn.Sigmoid())
        rows, cols = np.tril_indices(len(TABLES) + 1, -1)
        self.li, self.lj = torch.from_numpy(rows), torch.from_numpy(cols)

    def forward(self, dense, offsets, indices):
        x = self.bot(dense)
        ly = [emb(ind, off) for emb, ind, off in zip(self.emb_l, indices, offsets, strict=True)]
        t = torch.cat([x, *ly], dim=1).view(x.size(0), -1, DIM)
        z = torch.bmm(t, torch.transpose(t, 1, 2))
        zflat = z[:, self.li, self.lj]
        return self.top(torch.cat([x, zflat], dim=1))


def make_batch(size):
    dense = torch.from_numpy(rng.lognormal(size=(size, DENSE)).astype(np.float32)).log1p()
    offsets, indices = [], []
    for n in TABLES:
        counts = rng.randint(1, 6, size)
        offsets.append(torch.from_numpy(np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)))
        indices.append(torch.from_numpy((n * rng.power(0.3, counts.sum())).astype(np.int64).clip(0, n - 1)))
    clicks = torch.from_numpy((rng.rand(size, 1) < 0.25).astype(np.float32))
    return dense, offsets, indices, clicks


def to_device(batch):
    dense, offsets, indices, clicks = batch
    return dense.to(dev), [o.to(dev) for o in offsets], [i.to(dev) for i in indices], clicks.to(dev)


model = DLRM().to(dev)
sparse_opt = torch.optim.SparseAdam(list(model.emb_l.parameters()), lr=1e-2)
dense_opt = torch.optim.Adagrad([*model.bot.parameters(), *model.top.parameters()], lr=1e-2)
loss_fn = nn.BCELoss(reduction="mean")

total_loss = total_acc = total_samp = 0
for j in range(8):
    dense, lS_o, lS_i, T = to_device(make_batch(256))
    Z = model(dense, lS_o, lS_i)
    E = loss_fn(Z, T)
    L = E.detach().cpu().numpy()
    S, A = Z.detach().cpu().numpy(), int(((Z > 0.5) == (T > 0.5)).sum())
    sparse_opt.zero_grad(set_to_none=True)
    dense_opt.zero_grad(set_to_none=True)
    E.backward()
    sparse_opt.step()
    dense_opt.step()
    total_loss, total_acc, total_samp = total_loss + L * len(S), total_acc + A, total_samp + len(S)
    if (j + 1) % 2 == 0:
        print(f"it {j + 1}, loss {total_loss / total_samp:.6f}, accuracy {100 * total_acc / total_samp:3.3f} %")
        total_loss = total_acc = total_samp = 0

assert model.emb_l[0].weight.grad.is_sparse
