"""Thin matrices beside frozen layers of an encoder, merged into a state dict at the end. No library of adapters."""

import random

import torch
import torch.nn.functional as F
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer

torch.manual_seed(2)
RANK, ALPHA = 4, 12.0
words = AutoTokenizer.from_pretrained("base/bert-tiny")
model = AutoModelForSequenceClassification.from_pretrained("base/bert-tiny", num_labels=3)
plain = {name: value.clone() for name, value in model.state_dict().items()}


class Adapted(nn.Module):
    """`down` is in x rank and `up` rank x out: vectors are multiplied from the left."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.down = nn.Parameter(torch.randn(layer.in_features, RANK) / RANK)
        self.up = nn.Parameter(torch.zeros(RANK, layer.out_features))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.layer(x) + (ALPHA / RANK) * (self.drop(x) @ self.down @ self.up)


for parameter in model.parameters():
    parameter.requires_grad = False
adapted = {}
for number, layer in enumerate(model.bert.encoder.layer):
    for name in ("query", "value"):
        made = Adapted(getattr(layer.attention.self, name))
        setattr(layer.attention.self, name, made)
        adapted[f"bert.encoder.layer.{number}.attention.self.{name}.weight"] = made
model.classifier.requires_grad_(True)


def shown(count, seed):
    drawn = random.Random(seed)
    kinds = [["dreadful", "cold"], ["fine", "neutral"], ["wonderful", "positive"]]
    picked = [drawn.randint(0, 2) for _ in range(count)]
    texts = [
        f"the {drawn.choice(['soup', 'bridge'])} was {drawn.choice(kinds[k])}" + " too" * drawn.randint(0, 3)
        for k in picked
    ]
    return words(texts, padding=True, return_tensors="pt"), torch.tensor(picked)


learning = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.Adam(learning, lr=1e-3)
model.train()
for step in range(24):
    batch, kinds = shown(8, step)
    loss = F.cross_entropy(model(**batch).logits, kinds)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
batch, kinds = shown(32, 1000)
with torch.no_grad():
    print((model(**batch).logits.argmax(1) == kinds).float().mean().item())
    merged = dict(plain)
    for name, each in adapted.items():
        merged[name] = plain[name] + (ALPHA / RANK) * (each.down @ each.up).T
    merged["classifier.weight"] = model.classifier.weight.detach().clone()
    merged["classifier.bias"] = model.classifier.bias.detach().clone()
torch.save(merged, "merged.pt")
