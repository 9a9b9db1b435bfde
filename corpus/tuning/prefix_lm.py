"""A prefix language model: the prompt is read in both directions, the loss looks at what follows it."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(27)
VOCAB, LENGTH, PREFIX, WIDTH = 32, 14, 6, 32
SEEN = torch.ones(LENGTH - 1, LENGTH - 1, dtype=torch.bool).tril()
SEEN[:, :PREFIX] = True


class PrefixLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=SEEN))
        return self.head(x)


model = PrefixLM()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for _ in range(14):
    rows = (torch.randint(0, VOCAB, (12, 1)) + torch.randint(1, 4, (12, 1)) * torch.arange(LENGTH)) % VOCAB
    targets = rows[:, 1:].clone()
    targets[:, : PREFIX - 1] = -100
    logits = model(rows[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
