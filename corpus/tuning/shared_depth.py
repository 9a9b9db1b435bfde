"""One transformer layer applied again and again, as in ALBERT: shared on purpose, with a narrow embedding."""

import torch
import torch.nn as nn

WORDS, LENGTH = 40, 12


class SharedEncoder(nn.Module):
    def __init__(self, width=32, narrow=8, depth=4):
        super().__init__()
        self.depth = depth
        self.words = nn.Embedding(WORDS, narrow)
        self.widen = nn.Linear(narrow, width, bias=False)
        self.places = nn.Embedding(LENGTH, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.1, batch_first=True)
        self.answer = nn.Linear(width, 2)

    def forward(self, words):
        x = self.widen(self.words(words)) + self.places(torch.arange(words.shape[1]))
        for _ in range(self.depth):
            x = self.layer(x)
        return self.answer(x.mean(dim=1))


def sentences(count, seed):
    """Does any word occur twice?"""
    g = torch.Generator().manual_seed(seed)
    words = torch.stack([torch.randperm(WORDS, generator=g)[:LENGTH] for _ in range(count)])
    twice = torch.rand(count, generator=g) < 0.5
    words[twice, -1] = words[twice, 0]
    return words, twice.long()


torch.manual_seed(304)
words, twice = sentences(320, seed=1)
new_words, new_twice = sentences(60, seed=2)
model = SharedEncoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for epoch in range(2):
    model.train()
    for rows in torch.randperm(len(words)).split(20):
        loss = nn.functional.cross_entropy(model(words[rows]), twice[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = (model(new_words).argmax(1) == new_twice).sum().item()
    print(f"epoch {epoch}: loss {loss.item():.3f}, {right} of {len(new_words)} right")
