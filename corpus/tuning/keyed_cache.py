"""A decoder that keeps keys and values while it writes: trained on whole rows, sampled one token at a time."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(73)
VOCAB, WIDTH, HEADS, LONGEST = 20, 32, 4, 24


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.cache = None

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        if self.training:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            if self.cache is not None:
                k, v = torch.cat([self.cache[0], k], 2), torch.cat([self.cache[1], v], 2)
            self.cache = (k, v)
            known = torch.ones(t, k.shape[2], dtype=torch.bool).tril(k.shape[2] - t)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=known)
        return self.out(y.transpose(1, 2).reshape(b, t, WIDTH))


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(3)])
        self.attentions = nn.ModuleList([Attention() for _ in range(2)])
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, ids, begin=0):
        x = self.emb(ids) + self.pos(torch.arange(begin, begin + ids.shape[1]))
        for norm, attention in zip(self.norms, self.attentions, strict=False):
            x = x + attention(norm(x))
        return self.head(self.norms[-1](x))

    @torch.no_grad()
    def write(self, ids, more):
        self.eval()
        logits = self(ids)
        for _ in range(more):
            ids = torch.cat([ids, logits[:, -1:].argmax(-1)], 1)
            logits = self(ids[:, -1:], begin=ids.shape[1] - 1)
        for attention in self.attentions:
            attention.cache = None
        self.train()
        return ids


writer = Writer()
optimizer = torch.optim.Adam(writer.parameters(), lr=5e-3)
g = torch.Generator().manual_seed(74)
for step in range(45):
    start, stride = torch.randint(VOCAB, (16, 1), generator=g), torch.randint(1, 4, (16, 1), generator=g)
    ids = (start + stride * torch.arange(13)) % VOCAB
    loss = F.cross_entropy(writer(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 14:
        print(step + 1, loss.item(), writer.write(ids[:1, :4], 6).tolist())
