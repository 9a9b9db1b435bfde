"""Good or bad reviews with an LSTM: ragged sequences, padded by a collate function, packed for the LSTM."""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader

torch.manual_seed(5)
PAD, VOCAB = 0, 50


def make_reviews(n, seed):
    rng = random.Random(seed)
    reviews = []
    for _ in range(n):
        label = rng.randint(0, 1)
        words = [rng.randint(3, VOCAB - 1) for _ in range(rng.randint(4, 14))]
        words[rng.randrange(len(words))] = 1 + label
        reviews.append((torch.tensor(words), label))
    return reviews


def collate(samples):
    texts = [text for text, _ in samples]
    labels = torch.tensor([label for _, label in samples])
    lengths = torch.tensor([len(text) for text in texts])
    return pad_sequence(texts, batch_first=True, padding_value=PAD), lengths, labels


class ReviewLSTM(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width, padding_idx=PAD)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, dropout=0.2)
        self.dropout = nn.Dropout(0.2)
        self.classify = nn.Linear(width, 2)

    def forward(self, tokens, lengths):
        embedded = self.embed(tokens)
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        _, (hidden, _) = self.lstm(packed)
        return self.classify(self.dropout(hidden[-1]))


train_loader = DataLoader(make_reviews(160, 1), batch_size=16, shuffle=True, collate_fn=collate)
val_loader = DataLoader(make_reviews(40, 2), batch_size=20, collate_fn=collate)

model = ReviewLSTM()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)

history = []
for epoch in range(3):
    model.train()
    epoch_loss = 0.0
    for i, (tokens, lengths, labels) in enumerate(train_loader):
        logits = model(tokens, lengths)
        loss = criterion(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        epoch_loss += loss.item()
    history.append(epoch_loss / len(train_loader))

    model.eval()
    correct = 0
    with torch.no_grad():
        for tokens, lengths, labels in val_loader:
            correct += (model(tokens, lengths).argmax(1) == labels).sum().item()
    print(f"epoch {epoch}: loss {history[-1]:.4f}, accuracy {correct / 40:.2f}")
