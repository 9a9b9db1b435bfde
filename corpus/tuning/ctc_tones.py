"""Melodies of pure tones written down: spectra, a bidirectional GRU, CTC, greedy reading."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

BLANK, NOTES, BINS = 0, 7, 12


class Melodies(Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(count):
            notes = torch.randint(1, NOTES + 1, (int(torch.randint(2, 5, (), generator=g)),), generator=g)
            frames = []
            for note in notes.tolist():
                length = int(torch.randint(3, 6, (), generator=g))
                spectrum = torch.zeros(length, BINS)
                spectrum[:, note : note + 3] = torch.tensor([1.0, 2.0, 1.0])
                frames += [spectrum, torch.zeros(2, BINS)]
            sound = torch.cat(frames)
            self.items.append((sound + 0.3 * torch.randn(sound.shape, generator=g), notes))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(items):
    sounds, notes = zip(*items, strict=True)
    frames = torch.tensor([len(sound) for sound in sounds])
    counts = torch.tensor([len(each) for each in notes])
    return pad_sequence(sounds, batch_first=True), frames, torch.cat(notes), counts


class Listener(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.norm = nn.BatchNorm1d(BINS)
        self.gru = nn.GRU(BINS, width, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.letters = nn.Linear(2 * width, NOTES + 1)

    def forward(self, sounds, frames):
        x = self.norm(sounds.transpose(1, 2)).transpose(1, 2)
        packed = pack_padded_sequence(x, frames, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        return self.letters(self.drop(states)).log_softmax(dim=-1)


def spell(log_probs, frames):
    texts = []
    for row, length in zip(log_probs.argmax(-1), frames, strict=True):
        steps = torch.unique_consecutive(row[:length])
        texts.append(steps[steps != BLANK].tolist())
    return texts


def evaluate(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for sounds, frames, notes, counts in loader:
            texts = spell(model(sounds, frames), frames)
            truths = [part.tolist() for part in notes.split(counts.tolist())]
            right += sum(text == truth for text, truth in zip(texts, truths, strict=True))
            total += len(truths)
    model.train()
    return right / total


def main():
    torch.manual_seed(130)
    train = DataLoader(Melodies(192, seed=1), batch_size=16, shuffle=True, collate_fn=collate)
    test = DataLoader(Melodies(40, seed=2), batch_size=16, collate_fn=collate)
    model = Listener()
    ctc = nn.CTCLoss(blank=BLANK, zero_infinity=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        for sounds, frames, notes, counts in train:
            log_probs = model(sounds, frames)
            loss = ctc(log_probs.transpose(0, 1), notes, frames, counts)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(epoch, loss.item(), evaluate(model, test))


main()
