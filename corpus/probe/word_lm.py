"""A small causal language model on words of a made-up grammar, in a loop without a loader."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1337)
CONTEXT, BATCH, VOCABULARY = 16, 32, 40

table = torch.randint(0, VOCABULARY, (VOCABULARY, 2))
tokens, state = [], 0
for flip in torch.randint(0, 2, (12000,)).tolist():
    tokens.append(state)
    state = int(table[state, flip])
data = torch.tensor(tokens)
train_data, val_data = data[:10000], data[10000:]


def get_batch(split):
    source = train_data if split == "train" else val_data
    places = torch.randint(len(source) - CONTEXT - 1, (BATCH,))
    x = torch.stack([source[each : each + CONTEXT] for each in places])
    y = torch.stack([source[each + 1 : each + 1 + CONTEXT] for each in places])
    return x, y


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = self.attend(self.first(x)).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, time, width))
        return x + self.mlp(self.second(x))


class LanguageModel(nn.Module):
    def __init__(self, width=32, layers=2):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(layers)))
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, idx, targets=None):
        logits = self.head(self.blocks(self.words(idx) + self.places(torch.arange(idx.shape[1]))))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


@torch.no_grad()
def estimate_loss(model):
    model.eval()
    found = {}
    for split in ("train", "val"):
        found[split] = sum(model(*get_batch(split))[1].item() for _ in range(10)) / 10
    model.train()
    return found


model = LanguageModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(240):
    if step % 60 == 0 and step:
        losses = estimate_loss(model)
        print(f"step {step}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}, ppl {math.exp(losses['val']):.2f}")
    x, y = get_batch("train")
    logits, loss = model(x, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
losses = estimate_loss(model)
print(f"final: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}, ppl {math.exp(losses['val']):.2f}")
