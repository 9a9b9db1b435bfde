"""Reads lines of print: a convolution over columns, a GRU, CTC; blanks between letters, greedy decoding."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ALPHABET = "abcdef"
BLANK = 0
COLUMNS, ROWS = 28, 8


class PrintedLines(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        font = torch.rand(len(ALPHABET) + 1, ROWS, 4, generator=torch.Generator().manual_seed(321))
        font[0] = 0
        self.images, self.texts = [], []
        for _ in range(n):
            length = int(torch.randint(3, 6, (), generator=g))
            text = 1 + torch.randint(len(ALPHABET), (length,), generator=g)
            image = torch.zeros(ROWS, COLUMNS)
            for place, letter in enumerate(text):
                image[:, place * 5 + 1 : place * 5 + 5] = font[letter]
            self.images.append(image + 0.1 * torch.randn(ROWS, COLUMNS, generator=g))
            self.texts.append(text)

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        return self.images[i], self.texts[i]


def stack_lines(batch):
    images = torch.stack([image for image, _ in batch])
    texts = torch.cat([text for _, text in batch])
    return images, texts, torch.tensor([len(text) for _, text in batch])


class Reader(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.columns = nn.Sequential(nn.Conv1d(ROWS, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU())
        self.gru = nn.GRU(width, width, bidirectional=True, batch_first=True)
        self.letters = nn.Linear(2 * width, len(ALPHABET) + 1)

    def forward(self, images):
        features = self.columns(images).transpose(1, 2)
        states, _ = self.gru(features)
        return self.letters(states)


def greedy(logits):
    """The best letter of each column, repeats and blanks taken out."""
    texts = []
    for path in logits.argmax(-1).tolist():
        texts.append([c for c, before in zip(path, [BLANK, *path], strict=False) if c not in (BLANK, before)])
    return texts


@torch.no_grad()
def lines_read_right(reader, loader):
    reader.eval()
    right = lines = 0
    for images, texts, lengths in loader:
        truth = [part.tolist() for part in texts.split(lengths.tolist())]
        right += sum(a == b for a, b in zip(greedy(reader(images)), truth, strict=True))
        lines += len(truth)
    return right / lines


def main(epochs=4):
    torch.manual_seed(12)
    train = torch.utils.data.DataLoader(PrintedLines(192, 1), 16, shuffle=True, collate_fn=stack_lines)
    test = torch.utils.data.DataLoader(PrintedLines(30, 2), 12, collate_fn=stack_lines)
    reader = Reader()
    opt = torch.optim.NAdam(reader.parameters(), lr=8e-3)
    for epoch in range(epochs):
        reader.train()
        for images, texts, lengths in train:
            logits = reader(images)
            log_probs = F.log_softmax(logits, dim=-1).transpose(0, 1)
            columns = torch.full((len(images),), COLUMNS)
            loss = F.ctc_loss(log_probs, texts, columns, lengths, blank=BLANK)
            opt.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(reader.parameters(), 10.0)
            opt.step()
        print(f"{epoch + 1}/{epochs} ctc {loss.item():.3f} norm {norm:.2f} right {lines_read_right(reader, test):.2f}")


main()
