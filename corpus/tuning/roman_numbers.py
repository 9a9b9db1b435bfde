"""Numbers spelled in Roman letters: GRU encoder and decoder with attention, padded batches, teacher forcing."""

import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

PAD, GO, STOP = 0, 1, 2
ROMAN = {c: i + 3 for i, c in enumerate("IVXLCDM")}
SIGNS = {100: "C", 90: "XC", 50: "L", 40: "XL", 10: "X", 9: "IX", 5: "V", 4: "IV", 1: "I"}
SOURCE = 14


def spell(number):
    letters = ""
    for value, sign in SIGNS.items():
        while number >= value:
            letters, number = letters + sign, number - value
    return [ROMAN[c] for c in letters]


def pairs():
    numbers = list(range(1, 400))
    random.Random(8).shuffle(numbers)
    return [([int(d) + 3 for d in str(n)], spell(n)) for n in numbers]


def pad(rows):
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def collate(rows):
    source = pad([s for s, _ in rows])
    lengths = torch.tensor([len(s) for s, _ in rows])
    given = pad([[GO, *t] for _, t in rows])
    wanted = pad([[*t, STOP] for _, t in rows])
    return source, lengths, given, wanted


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed = nn.Embedding(SOURCE, width, padding_idx=PAD)
        self.gru = nn.GRU(width, width, batch_first=True)

    def forward(self, source, lengths):
        packed = pack_padded_sequence(self.embed(source), lengths, batch_first=True, enforce_sorted=False)
        states, last = self.gru(packed)
        states, _ = pad_packed_sequence(states, batch_first=True)
        return states, last


class Decoder(nn.Module):
    def __init__(self, width, letters):
        super().__init__()
        self.embed = nn.Embedding(letters, width, padding_idx=PAD)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.mix = nn.Linear(2 * width, width)
        self.letter = nn.Linear(width, letters)

    def forward(self, given, memory, last, real):
        states, last = self.gru(self.embed(given), last)
        scores = states @ memory.transpose(1, 2)
        scores = scores.masked_fill(~real[:, None, :], -1e9)
        context = scores.softmax(dim=-1) @ memory
        x = torch.tanh(self.mix(torch.cat([states, context], dim=-1)))
        return self.letter(self.drop(x)), last


class Speller(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.encoder = Encoder(width)
        self.decoder = Decoder(width, len(ROMAN) + 3)

    def forward(self, source, lengths, given):
        memory, last = self.encoder(source, lengths)
        return self.decoder(given, memory, last, source != PAD)[0]


def batches(rows, size, rng=None):
    rows = rng.sample(rows, len(rows)) if rng else rows
    for i in range(0, len(rows), size):
        yield collate(rows[i : i + size])


def letter_loss(scores, wanted):
    return F.cross_entropy(scores.flatten(0, 1), wanted.flatten(), ignore_index=PAD)


def evaluate(model, rows):
    model.eval()
    loss, letters, whole = 0.0, 0, 0
    with torch.no_grad():
        for source, lengths, given, wanted in batches(rows, 32):
            scores = model(source, lengths, given)
            count = (wanted != PAD).sum().item()
            loss += letter_loss(scores, wanted).item() * count
            letters += count
            guess = scores.argmax(dim=-1)
            whole += ((guess == wanted) | (wanted == PAD)).all(dim=1).sum().item()
    return loss / letters, whole / len(rows)


def train(epochs=5):
    torch.manual_seed(21)
    rng = random.Random(21)
    rows = pairs()
    held, rows = rows[:70], rows[70:]
    model = Speller()
    optimizer = torch.optim.Adamax(model.parameters(), lr=1e-2)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    history = []
    for epoch in range(epochs):
        model.train()
        for source, lengths, given, wanted in batches(rows, 22, rng):
            scores = model(source, lengths, given)
            loss = letter_loss(scores, wanted)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            optimizer.zero_grad()
            history.append(loss.item())
        decay.step()
        loss, whole = evaluate(model, held)
        print(f"{epoch}: trained {sum(history[-15:]) / 15:.3f}, held out {loss:.3f}, whole numbers {whole:.2f}")


train()
