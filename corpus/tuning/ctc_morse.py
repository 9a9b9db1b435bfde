"""Morse code by ear: noisy tones of unequal length from a stream, strided convolutions, a GRU and CTC."""

import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

CODE = {"E": ".", "T": "-", "A": ".-", "N": "-.", "M": "--"}
LETTERS = " " + "".join(CODE)  # number 0 is the blank
BLANK, PADDING = 0, 0
EPOCHS, BATCH, MESSAGES = 5, 8, 240


def key(text):
    """On and off: a dot lasts two frames, a dash five, and three frames of silence part the letters."""
    frames = []
    for letter in text:
        for mark in CODE[letter]:
            frames += [1.0] * (2 if mark == "." else 5) + [0.0] * 2
        frames += [0.0] * 3
    return torch.tensor(frames)


def message(number):
    g = torch.Generator().manual_seed(number)
    size = int(torch.randint(1, 5, (), generator=g))
    numbers = torch.randint(1, len(LETTERS), (size,), generator=g)
    return key("".join(LETTERS[n] for n in numbers)), numbers


class Messages(IterableDataset):
    """Messages of a range, each worker a share, heard through noise that is new in each epoch."""

    def __init__(self, first, last):
        self.first, self.last = first, last

    def __iter__(self):
        info = get_worker_info()
        number, workers = (info.id, info.num_workers) if info else (0, 1)
        for i in itertools.islice(range(self.first, self.last), number, None, workers):
            tone, letters = message(i)
            yield (tone - 0.5) * 2 + 0.3 * torch.randn(len(tone)), letters


def collate(items):
    tones, letters = zip(*items, strict=True)
    return (
        nn.utils.rnn.pad_sequence(tones, batch_first=True).unsqueeze(-1),
        torch.tensor([len(tone) for tone in tones]),
        nn.utils.rnn.pad_sequence(letters, batch_first=True, padding_value=PADDING),
        torch.tensor([len(word) for word in letters]),
    )


class Listener(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.conv = nn.Conv1d(1, width, 5, stride=2, padding=2)
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.letter = nn.Linear(2 * width, len(LETTERS))

    def forward(self, tones, lengths):
        x = torch.relu(self.conv(tones.transpose(1, 2))).transpose(1, 2)
        lengths = (lengths + 1) // 2
        heard = (torch.arange(x.shape[1]) < lengths[:, None]).unsqueeze(-1)
        x, _ = self.gru(x * heard)
        return self.letter(self.drop(x)).log_softmax(dim=-1), lengths


def spell(log_probs, lengths):
    words = []
    for row, length in zip(log_probs.argmax(dim=-1).tolist(), lengths.tolist(), strict=True):
        words.append([n for n, _ in itertools.groupby(row[:length]) if n != BLANK])
    return words


def letters_right(model, rows):
    """The share of words that are spelled without a mistake."""
    model.eval()
    right = 0
    with torch.no_grad():
        for start in range(0, len(rows), 16):
            tones, lengths, letters, sizes = collate(rows[start : start + 16])
            words = spell(*model(tones, lengths))
            right += sum(word == t[:n].tolist() for word, t, n in zip(words, letters, sizes, strict=True))
    share = right / len(rows)
    model.train()
    return share


def main():
    torch.manual_seed(5)
    test_rows = list(Messages(10_000, 10_050))
    loader = DataLoader(Messages(0, MESSAGES), batch_size=BATCH, num_workers=2, collate_fn=collate)
    model = Listener()
    model.train()
    criterion = nn.CTCLoss(blank=BLANK, zero_infinity=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(EPOCHS):
        total = count = 0
        for tones, lengths, letters, sizes in loader:
            log_probs, frames = model(tones, lengths)
            loss = criterion(log_probs.transpose(0, 1), letters, frames, sizes)
            optimizer.zero_grad()
            loss.backward()
            for parameter in model.parameters():
                parameter.grad.clamp_(-0.5, 0.5)
            optimizer.step()
            total += loss.item() * len(tones)
            count += len(tones)
        print(f"{epoch}: loss {total / count:.3f}, spelled right {letters_right(model, test_rows):.2f}")


if __name__ == "__main__":
    main()
