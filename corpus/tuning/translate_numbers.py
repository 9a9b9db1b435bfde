"""Numbers from figures into words: an encoder-decoder of nn.Transformer layers, dict batches, buckets by length."""

import math
import random

import torch
from torch import nn

ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
TENS = ["_", "_", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
WORDS = ["<pad>", "<go>", "<end>", "hundred", "and", *ONES, *TEENS, *TENS[2:]]
PAD, GO, END = 0, 1, 2
FIGURES = 11  # padding and ten digits


def spell(n):
    if n < 10:
        return [ONES[n]]
    if n < 20:
        return [TEENS[n - 10]]
    if n < 100:
        return [TENS[n // 10]] + ([ONES[n % 10]] if n % 10 else [])
    return [ONES[n // 100], "hundred"] + (["and", *spell(n % 100)] if n % 100 else [])


def make_pairs():
    numbers = list(range(1000))
    random.Random(4).shuffle(numbers)
    pairs = [([int(d) + 1 for d in str(n)], [WORDS.index(w) for w in spell(n)]) for n in numbers]
    return pairs[:880], pairs[880:]


def to_batch(pairs):
    def block(rows):
        width = max(map(len, rows))
        return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])

    return {
        "source": block([figures for figures, _ in pairs]),
        "given": block([[GO, *words] for _, words in pairs]),
        "wanted": block([[*words, END] for _, words in pairs]),
    }


def buckets(pairs, size, rng):
    """Batches of numbers with about as many words, in random order."""
    rows = sorted(pairs, key=lambda pair: (len(pair[1]), rng.random()))
    batches = [rows[i : i + size] for i in range(0, len(rows), size)]
    rng.shuffle(batches)
    return [to_batch(rows) for rows in batches]


class Places(nn.Module):
    """Sines and cosines."""

    def __init__(self, width, longest=16):
        super().__init__()
        place = torch.arange(longest)[:, None]
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(1000.0) / width))
        table = torch.cat([torch.sin(place * rate), torch.cos(place * rate)], dim=1)
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[: x.shape[1]]


class Translator(nn.Module):
    def __init__(self, width=48, heads=4, depth=2, dropout=0.05):
        super().__init__()
        self.scale = math.sqrt(width)
        self.figures = nn.Embedding(FIGURES, width, padding_idx=PAD)
        self.words = nn.Embedding(len(WORDS), width, padding_idx=PAD)
        for table in (self.figures, self.words):
            nn.init.normal_(table.weight, std=1 / self.scale)
        self.places = Places(width)
        options = {"dim_feedforward": 96, "dropout": dropout, "batch_first": True, "norm_first": True}
        self.readers = nn.ModuleList([nn.TransformerEncoderLayer(width, heads, **options) for _ in range(depth)])
        self.writers = nn.ModuleList([nn.TransformerDecoderLayer(width, heads, **options) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.score = nn.Linear(width, len(WORDS), bias=False)
        self.score.weight = self.words.weight

    def encode(self, source):
        hidden = source == PAD
        x = self.places(self.figures(source) * self.scale)
        for layer in self.readers:
            x = layer(x, src_key_padding_mask=hidden)
        return x, hidden

    def decode(self, given, memory, hidden):
        future = torch.ones(given.shape[1], given.shape[1], dtype=torch.bool).triu(1)
        y = self.places(self.words(given) * self.scale)
        for layer in self.writers:
            y = layer(y, memory, tgt_mask=future, memory_key_padding_mask=hidden)
        return self.score(self.norm(y))

    def forward(self, source, given):
        return self.decode(given, *self.encode(source))


@torch.inference_mode()
def exactly_right(model, pairs):
    """Share of numbers that are spelled without a mistake, word after word."""
    model.eval()
    right = 0
    for batch in (to_batch(pairs[i : i + 40]) for i in range(0, len(pairs), 40)):
        memory, hidden = model.encode(batch["source"])
        said = torch.full((len(memory), 1), GO)
        for _ in range(batch["wanted"].shape[1]):
            best = model.decode(said, memory, hidden)[:, -1].argmax(-1, keepdim=True)
            said = torch.cat([said, best], dim=1)
        wanted = batch["wanted"]
        right += ((said[:, 1:] == wanted) | (wanted == PAD)).all(dim=1).sum().item()
    return right / len(pairs)


def main():
    torch.manual_seed(40)
    rng = random.Random(41)
    known, new = make_pairs()
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
    epochs, size = 5, 40
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=epochs * math.ceil(len(known) / size))
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.02, reduction="sum")
    for epoch in range(epochs):
        model.train()
        nats = tokens = 0
        for batch in buckets(known, size, rng):
            logits = model(batch["source"], batch["given"])
            summed = criterion(logits.transpose(1, 2), batch["wanted"])
            count = (batch["wanted"] != PAD).sum()
            loss = summed / count
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            nats, tokens = nats + summed.item(), tokens + count.item()
        print(f"epoch {epoch + 1}: {nats / tokens:.3f} per word, {exactly_right(model, new):.0%} of new numbers right")
    torch.save(model.state_dict(), "numbers.pt")


if __name__ == "__main__":
    main()
