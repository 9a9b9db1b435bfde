"""Times of day in words to digits: an encoder and a decoder of torch's transformer layers, teacher forcing, padded."""

import random

import torch
import torch.nn as nn

PAD, BOS, EOS = 0, 1, 2
NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
TENS = ["twenty", "thirty", "forty", "fifty"]
WORDS = [*NUMBERS, *TENS, "past"]
SOURCE = {word: i + 3 for i, word in enumerate(WORDS)}
DIGITS = {digit: i + 3 for i, digit in enumerate("0123456789:")}


def minutes(minute):
    if minute <= 12:
        return [NUMBERS[minute - 1]] if minute else []
    return [TENS[minute // 10 - 2]] + ([NUMBERS[minute % 10 - 1]] if minute % 10 else [])


def times(first, last):
    """Times of the day in a fixed order; none is there twice."""
    day = [(hour, minute) for hour in range(1, 13) for minute in [*range(13), *range(20, 60)]]
    random.Random(1).shuffle(day)
    pairs = []
    for hour, minute in day[first:last]:
        words = [*minutes(minute), "past", NUMBERS[hour - 1]] if minute else [NUMBERS[hour - 1]]
        target = [BOS, *(DIGITS[c] for c in f"{hour}:{minute:02d}"), EOS]
        pairs.append(([SOURCE[word] for word in words], target))
    return pairs


def pad(rows):
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def batches(pairs, size, rng):
    pairs = rng.sample(pairs, len(pairs))
    for i in range(0, len(pairs), size):
        sources, targets = zip(*pairs[i : i + size], strict=True)
        yield pad(sources), pad(targets)


class Translator(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.source = nn.Embedding(len(SOURCE) + 3, width, padding_idx=PAD)
        self.target = nn.Embedding(len(DIGITS) + 3, width, padding_idx=PAD)
        self.places = nn.Parameter(0.1 * torch.randn(10, width))
        options = {"dim_feedforward": 64, "dropout": 0.1, "batch_first": True}
        self.encoder = nn.TransformerEncoderLayer(width, heads, **options)
        self.decoder = nn.TransformerDecoderLayer(width, heads, **options)
        self.out = nn.Linear(width, len(DIGITS) + 3, bias=False)
        nn.init.normal_(self.target.weight, std=0.1)
        self.out.weight = self.target.weight

    def forward(self, source, target):
        hidden = source == PAD
        memory = self.source(source) + self.places[: source.shape[1]]
        memory = self.encoder(memory, src_key_padding_mask=hidden)
        future = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        x = self.target(target) * 10 + self.places[: target.shape[1]]
        x = self.decoder(x, memory, tgt_mask=future, memory_key_padding_mask=hidden)
        return self.out(x)


def token_accuracy(model, pairs):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for source, target in batches(pairs, 16, random.Random(0)):
            guess = model(source, target[:, :-1]).argmax(-1)
            real = target[:, 1:] != PAD
            right += ((guess == target[:, 1:]) & real).sum().item()
            total += real.sum().item()
    return right / total


def main():
    torch.manual_seed(90)
    rng = random.Random(90)
    train, test = times(0, 240), times(240, 280)
    model = Translator()
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(2):
        model.train()
        for source, target in batches(train, 12, rng):
            inputs, wanted = target[:, :-1], target[:, 1:]
            scores = model(source, inputs)
            loss = criterion(scores.flatten(0, 1), wanted.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, round(loss.item(), 3), round(token_accuracy(model, test), 3))


if __name__ == "__main__":
    main()
