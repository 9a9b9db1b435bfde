"""Subjects of papers from their words and from what they cite: a graph network over the whole graph in every step."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

SUBJECTS, PAPERS, WORDS = 5, 400, 60
torch.manual_seed(12)


def make_graph(seed):
    """Papers cite mostly their own subject; each subject likes some of the words, which single papers hardly show."""
    g = torch.Generator().manual_seed(seed)
    subject = torch.randint(SUBJECTS, (PAPERS,), generator=g)
    same = subject[:, None] == subject[None, :]
    cites = torch.rand(PAPERS, PAPERS, generator=g) < torch.where(same, 0.04, 0.003)
    cites = cites.triu(1)
    liked = torch.rand(SUBJECTS, WORDS, generator=g) < 0.15
    words = (torch.rand(PAPERS, WORDS, generator=g) < torch.where(liked[subject], 0.3, 0.06)).float()
    return words / words.sum(1, keepdim=True).clamp(min=1), (cites | cites.T).nonzero().T, subject


def make_masks(seed):
    """Which papers are to learn from, which decide when to stop, and which are for the test: none in two of them."""
    order = torch.randperm(PAPERS, generator=torch.Generator().manual_seed(seed))
    masks = torch.zeros(3, PAPERS, dtype=torch.bool)
    for mask, rows in zip(masks, order.split([100, 100, 200]), strict=True):
        mask[rows] = True
    return masks


def normalised(edges):
    """The adjacency with self-loops, divided by the roots of both degrees, as a sparse matrix."""
    loops = torch.arange(PAPERS).expand(2, -1)
    rows, columns = torch.cat([edges, loops], dim=1)
    degree = torch.zeros(PAPERS).index_add_(0, rows, torch.ones(len(rows)))
    weights = (degree[rows] * degree[columns]).rsqrt()
    return torch.sparse_coo_tensor(torch.stack([rows, columns]), weights, (PAPERS, PAPERS)).coalesce()


class GCN(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Linear(WORDS, width, bias=False)
        self.second = nn.Linear(width, SUBJECTS, bias=False)
        self.shift1, self.shift2 = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(SUBJECTS))
        self.dropout = nn.Dropout(0.5)

    def forward(self, words, adjacency):
        x = torch.sparse.mm(adjacency, self.first(self.dropout(words))) + self.shift1
        return torch.sparse.mm(adjacency, self.second(self.dropout(F.relu(x)))) + self.shift2


words, edges, subject = make_graph(seed=1)
train_mask, val_mask, test_mask = make_masks(seed=2)
adjacency = normalised(edges)
model = GCN()
optimizer = torch.optim.Adam(
    [
        {"params": [model.first.weight], "weight_decay": 5e-4},
        {"params": [model.second.weight, model.shift1, model.shift2]},
    ],
    lr=0.03,
)
best_loss, best_weights = float("inf"), None
for epoch in range(100):
    model.train()
    optimizer.zero_grad()
    logits = model(words, adjacency)
    loss = F.cross_entropy(logits[train_mask], subject[train_mask])
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        logits = model(words, adjacency)
        val_loss = F.cross_entropy(logits[val_mask], subject[val_mask]).item()
        accuracy = (logits[val_mask].argmax(dim=1) == subject[val_mask]).float().mean().item()
    if val_loss < best_loss:
        best_loss, best_weights = val_loss, copy.deepcopy(model.state_dict())
    if epoch % 20 == 19:
        print(f"epoch {epoch} train {loss.item():.3f} val {val_loss:.3f} accuracy {accuracy:.3f}")

model.load_state_dict(best_weights)
model.eval()
with torch.no_grad():
    guess = model(words, adjacency)[test_mask].argmax(dim=1)
print(f"test accuracy {(guess == subject[test_mask]).float().mean().item():.3f}")
