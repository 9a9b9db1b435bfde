"""Where a surname comes from: its letters through a two-way GRU, pooled by attention over the real letters."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
ENDINGS = {"nordic": ["sen", "berg", "lund"], "iberian": ["ez", "es", "eira"], "slavic": ["ski", "ov", "ko"]}
ORIGINS = list(ENDINGS)


def invent(count, generator):
    """Distinct surnames and the numbers of their origins, in random order."""

    def draw(n):
        return int(torch.randint(n, (), generator=generator))

    names = {}
    while len(names) < count:
        origin = draw(len(ORIGINS))
        moved = draw(8) == 0  # a few names have come from elsewhere
        endings = ENDINGS[ORIGINS[draw(len(ORIGINS)) if moved else origin]]
        stem = "".join("bdfgklmnprst"[draw(12)] + "aeiou"[draw(5)] for _ in range(1 + draw(3)))
        names[stem + endings[draw(len(endings))]] = origin
    return list(names.items())


def as_tensor(name):
    return torch.tensor([1 + ALPHABET.index(letter) for letter in name])


def make_batches(pairs, size):
    """Padded letters, lengths and origins, one batch after another."""
    for start in range(0, len(pairs), size):
        part = pairs[start : start + size]
        letters = [as_tensor(name) for name, _ in part]
        lengths = torch.tensor([len(word) for word in letters])
        origins = torch.tensor([origin for _, origin in part])
        yield pad_sequence(letters, batch_first=True), lengths, origins


class SurnameNet(nn.Module):
    def __init__(self, width=24, drop=0.2):
        super().__init__()
        self.embed = nn.Embedding(1 + len(ALPHABET), width, padding_idx=0)
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.query = nn.Parameter(torch.randn(2 * width) * 0.1)
        self.drop = nn.Dropout(drop)
        self.origin = nn.Linear(2 * width, len(ORIGINS))

    def forward(self, letters, lengths):
        packed = pack_padded_sequence(self.embed(letters), lengths, batch_first=True, enforce_sorted=False)
        states, _ = self.gru(packed)
        states, _ = pad_packed_sequence(states, batch_first=True)
        padding = torch.arange(states.shape[1]) >= lengths[:, None]
        scores = (states @ self.query).masked_fill(padding, float("-inf"))
        weights = scores.softmax(dim=1)
        pooled = (weights.unsqueeze(-1) * states).sum(dim=1)
        return self.origin(self.drop(pooled))


def train_epoch(model, optimizer, pairs, generator, size):
    model.train()
    order = torch.randperm(len(pairs), generator=generator).tolist()
    shuffled = [pairs[i] for i in order]
    losses = []
    for letters, lengths, origins in make_batches(shuffled, size):
        logits = model(letters, lengths)
        loss = cross_entropy(logits, origins)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def accuracy(model, pairs, size):
    model.eval()
    right = 0
    for letters, lengths, origins in make_batches(pairs, size):
        right += int((model(letters, lengths).argmax(dim=1) == origins).sum())
    return right / len(pairs)


def run(epochs=4, size=20, lr=0.01):
    torch.manual_seed(77)
    generator = torch.Generator().manual_seed(78)
    pairs = invent(470, generator)
    train_pairs, held_pairs = pairs[:400], pairs[400:]
    model = SurnameNet()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=lr)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.7)
    best = 0.0
    for epoch in range(epochs):
        loss = train_epoch(model, optimizer, train_pairs, generator, size)
        scheduler.step()
        score = accuracy(model, held_pairs, size)
        if score >= best:
            best = score
            torch.save(model.state_dict(), "surnames.pt")
        print(f"epoch {epoch}: loss {loss:.3f}, held {score:.3f}")
    model.load_state_dict(torch.load("surnames.pt"))
    return model


if __name__ == "__main__":
    run()
