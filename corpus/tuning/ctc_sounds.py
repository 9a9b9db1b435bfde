"""Connectionist temporal classification: time-major log-probabilities, lengths for inputs and targets."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(35)


class Listener(nn.Module):
    def __init__(self, classes=8):
        super().__init__()
        self.rnn = nn.GRU(6, 24, bidirectional=True)
        self.head = nn.Linear(48, classes)

    def forward(self, sounds):
        return self.head(self.rnn(sounds)[0]).log_softmax(dim=2)


model = Listener()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
codes = torch.randn(8, 6)
for _ in range(10):
    words = torch.randint(1, 8, (10, 5))
    sounds = codes[words.repeat_interleave(4, dim=1)].transpose(0, 1) + 0.2 * torch.randn(20, 10, 6)
    log_probabilities = model(sounds)
    loss = F.ctc_loss(log_probabilities, words, torch.full((10,), 20), torch.full((10,), 5), zero_infinity=True)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
