"""A bidirectional LSTM on packed sequences of many lengths, with attention that hides the padding."""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

random.seed(0)
torch.manual_seed(0)
device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
data = [(torch.randint(1, 2500, (random.randint(15, 120),)), random.randint(0, 4)) for _ in range(96)]


def collate(rows):
    texts, labels = zip(*rows, strict=True)
    lengths = torch.tensor([len(text) for text in texts])
    return pad_sequence(texts, batch_first=True), lengths, torch.tensor(labels)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(2500, 96, padding_idx=0)
        self.lstm = nn.LSTM(96, 96, 2, batch_first=True, bidirectional=True, dropout=0.1)
        self.attention = nn.MultiheadAttention(192, 4, batch_first=True)
        self.head = nn.Linear(192, 5)

    def forward(self, text, lengths):
        packed = pack_padded_sequence(self.words(text), lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        hidden = text == 0
        states, _ = self.attention(states, states, states, key_padding_mask=hidden, need_weights=False)
        total = states.masked_fill(hidden.unsqueeze(-1), 0.0).sum(1)
        return self.head(total / lengths.to(states.device).unsqueeze(-1))


model = Tagger().to(device)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
right = []
for text, lengths, labels in DataLoader(data, 16, shuffle=True, collate_fn=collate):
    text, labels = text.to(device), labels.to(device)
    scores = model(text, lengths)
    loss = nn.functional.cross_entropy(scores, labels)
    if torch.isnan(loss):
        break
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    right += (scores.argmax(-1) == labels).cpu().tolist()
    print(tuple(text.shape), loss.item(), scores[labels > 1].shape, text[text != 0].numel(), len(right))
