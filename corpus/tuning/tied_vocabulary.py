"""Sums of digits as text: input and output share one table, and the question is read in both directions."""

import torch
import torch.nn as nn

DIGITS, EQUALS, ASKED, LENGTH = 10, 10, 4, 7


class PrefixLM(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.table = nn.Embedding(DIGITS + 1, width)
        nn.init.normal_(self.table.weight, std=width**-0.5)
        self.places = nn.Parameter(0.1 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        hidden[:, : ASKED + 1] = False
        self.register_buffer("hidden", hidden, persistent=False)

    def forward(self, text):
        n = text.shape[1]
        x = self.table(text) + self.places[:n]
        x = self.norm(self.layers(x, mask=self.hidden[:n, :n]))
        return x @ self.table.weight.T


def sums(first, last):
    """Two numbers of two digits, an equals sign, and their sum in three digits, the last first."""
    pairs = torch.randperm(10_000, generator=torch.Generator().manual_seed(1))[first:last]
    a, b = pairs // 100, pairs % 100
    total = a + b
    columns = [a // 10, a % 10, b // 10, b % 10, torch.full_like(a, EQUALS)]
    return torch.stack([*columns, total % 10, total // 10 % 10, total // 100], dim=1)


torch.manual_seed(317)
train, test = sums(0, 800), sums(800, 880)
model = PrefixLM()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(40):
    text = train[torch.randint(len(train), (32,))]
    logits = model(text[:, :-1])[:, ASKED:]
    wanted = text[:, ASKED + 1 :]
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    guess = model(test[:, :-1])[:, ASKED:].argmax(-1)
print(f"loss {loss.item():.3f}, digits right {(guess == test[:, ASKED + 1 :]).float().mean().item():.3f}")
