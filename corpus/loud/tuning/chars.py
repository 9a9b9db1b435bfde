import torch
from torch import nn
from torch.nn import functional as F

TEXT = "the quick brown fox jumps over the lazy dog. " * 20
LETTERS = sorted(set(TEXT))


class Language(nn.Module):
    def __init__(self, letters, width=24):
        super().__init__()
        self.embed = nn.Embedding(letters, width)
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, letters)

    def forward(self, tokens, state=None):
        seen, state = self.rnn(self.embed(tokens), state)
        return self.out(seen), state


def stream(batch=4, length=16):
    tokens = torch.tensor([LETTERS.index(letter) for letter in TEXT])
    rows = tokens[: len(tokens) // batch * batch].view(batch, -1)
    for start in range(0, 96, length):
        yield rows[:, start : start + length], rows[:, start + 1 : start + length + 1]


def train():
    torch.manual_seed(0)
    model = Language(len(LETTERS))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    state = None
    for inputs, targets in stream():
        logits, state = model(inputs, state)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state = tuple(each.detach() for each in state)


train()
