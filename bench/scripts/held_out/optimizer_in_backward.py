"""Trains a classifier of texts in batches of a token budget; the optimizer steps inside of the backward."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(0)
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
VOCAB, DIM, BUDGET, CLASSES = 8000, 192, 1200, 6

texts = [torch.randint(1, VOCAB, (min(int(random.lognormvariate(3.6, 0.7)) + 4, 300),)) for _ in range(220)]
labels = [random.randrange(CLASSES) for _ in texts]


def batches():
    """Rows of like length, so many that the padded batch stays within the budget."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]) + random.random())
    group, groups = [], []
    for i in order:
        if group and (len(group) + 1) * len(texts[i]) > BUDGET:
            groups.append(group)
            group = []
        group.append(i)
    groups.append(group)
    random.shuffle(groups)
    for g in groups[:8]:
        ids = nn.utils.rnn.pad_sequence([texts[i] for i in g], batch_first=True)
        yield ids, torch.tensor([labels[i] for i in g])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM, padding_idx=0)
        layer = nn.TransformerEncoderLayer(DIM, 6, 4 * DIM, 0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.pool, self.out = nn.Linear(DIM, 1), nn.Linear(DIM, CLASSES)

    def forward(self, ids):
        pad = ids == 0
        x = self.encoder(self.embed(ids), src_key_padding_mask=pad)
        score = self.pool(x).squeeze(-1).masked_fill(pad, float("-inf"))
        return self.out((score.softmax(-1).unsqueeze(-1) * x).sum(1))


model = Net().to(device)
optimizer_of = {p: torch.optim.AdamW([p], lr=1e-3, foreach=False) for p in model.parameters()}


def step_now(parameter):
    optimizer_of[parameter].step()
    optimizer_of[parameter].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(step_now)

for n, (ids, y) in enumerate(batches()):
    ids, y = ids.to(device), y.to(device)
    loss = F.cross_entropy(model(ids), y)
    loss.backward()
    print(f"batch {n} of {tuple(ids.shape)} loss {loss.item():.4f} real tokens {(ids != 0).sum().item()}")
print("gradients left:", sum(p.grad is not None for p in model.parameters()))
