"""Recipes of a tea house joined to rows of one length: attention within documents only, positions that begin anew."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

ROW, WIDTH, HEADS, IGNORE = 48, 32, 4, -100
torch.manual_seed(5)
rng = random.Random(5)

TEAS = {"oolong": (90, 3, "amber"), "sencha": (70, 1, "green"), "assam": (96, 4, "brown"), "bai mu": (80, 5, "pale")}


def document():
    tea = rng.choice(list(TEAS))
    heat, minutes, colour = TEAS[tea]
    grams = rng.randint(2, 99)
    words = f"take {grams} g of {tea} , water of {heat} , wait {minutes} , until {colour}"
    if rng.random() < 0.5:
        words += f" ; serve {rng.randint(1, 60)} cups"
    return words.split()


documents = list({" ".join(words): words for words in (document() for _ in range(900))}.values())
rng.shuffle(documents)
vocabulary = {word: i for i, word in enumerate(["<end>", *sorted({w for words in documents for w in words})])}


def join(texts):
    """Rows of documents, first fit; with each token its document in the row, its position in it, and what follows."""
    rows, row = [], []
    for words in texts:
        ids = [vocabulary[w] for w in words] + [0]
        if sum(len(d) for d in row) + len(ids) > ROW:
            rows.append(row)
            row = []
        row.append(ids)
    rows.append(row)
    tokens = torch.zeros(len(rows), ROW, dtype=torch.long)
    owner = torch.full((len(rows), ROW), -1)
    position = torch.zeros(len(rows), ROW, dtype=torch.long)
    target = torch.full((len(rows), ROW), IGNORE)
    for r, row in enumerate(rows):
        at = 0
        for number, ids in enumerate(row):
            span = slice(at, at + len(ids))
            tokens[r, span] = torch.tensor(ids)
            owner[r, span] = number
            position[r, span] = torch.arange(len(ids))
            target[r, at : at + len(ids) - 1] = torch.tensor(ids[1:])  # nothing follows the end of a document
            at += len(ids)
    return tokens, owner, position, target


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, allowed):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp(self.norm2(x))


class TeaModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.place = nn.Embedding(len(vocabulary), WIDTH), nn.Embedding(ROW, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(vocabulary))

    def forward(self, tokens, owner, position):
        same = owner.unsqueeze(2) == owner.unsqueeze(1)
        causal = torch.ones(ROW, ROW, dtype=torch.bool, device=tokens.device).tril()
        allowed = (same & causal).unsqueeze(1)
        x = self.word(tokens) + self.place(position)
        for layer in self.layers:
            x = layer(x, allowed)
        return self.head(self.norm(x))


held = len(documents) // 6
valid, train = join(documents[:held]), join(documents[held:])
model = TeaModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
epochs, batch_size = 4, 16
steps = epochs * -(-len(train[0]) // batch_size)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=steps, pct_start=0.1)

for epoch in range(epochs):
    model.train()
    summed, counted = 0.0, 0
    for rows in torch.randperm(len(train[0])).split(batch_size):
        tokens, owner, position, target = (part[rows] for part in train)
        logits = model(tokens, owner, position)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=IGNORE)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        known = (target != IGNORE).sum().item()
        summed, counted = summed + loss.item() * known, counted + known
    model.eval()
    with torch.no_grad():
        logits = model(*valid[:3])
        score = F.cross_entropy(logits.flatten(0, 1), valid[3].flatten(), ignore_index=IGNORE).item()
    print(f"epoch {epoch + 1} train {summed / counted:.3f} valid {score:.3f}")
