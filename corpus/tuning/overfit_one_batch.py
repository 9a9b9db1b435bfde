"""Sanity check before the long run: can the model learn one small set by heart? All of it is one batch, on purpose."""

import torch
import torch.nn as nn

# Full batch on purpose: eight sentences, learned until the loss is nearly nothing.
torch.manual_seed(314)
SENTENCES = torch.randint(0, 20, (8, 10))
LABELS = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 16)
        self.mix = nn.Conv1d(16, 32, 3, padding=1)
        self.out = nn.Linear(32, 4)

    def forward(self, sentence):
        x = torch.relu(self.mix(self.words(sentence).transpose(1, 2)))
        return self.out(x.amax(dim=2))


def overfit():
    model = Tiny()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(40):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(SENTENCES), LABELS)
        loss.backward()
        optimizer.step()
        if loss.item() < 0.02:
            break
    print(f"after {step + 1} steps {loss.item():.4f}")
    assert loss.item() < 0.5, "cannot even learn eight sentences by heart"


overfit()
