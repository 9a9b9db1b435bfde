"""Trains a BERT of 365 million parameters to guess hidden words. It wants a GPU."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
args = parser.parse_args()
WORDS, HIDDEN = 30_522, 103


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(1024, 16, 4096, activation="gelu", batch_first=True)
        self.words, self.places = nn.Embedding(WORDS, 1024), nn.Parameter(torch.zeros(512, 1024))
        self.layers, self.head = nn.TransformerEncoder(layer, 24), nn.Linear(1024, WORDS)

    def forward(self, words):
        return self.head(self.layers(self.words(words) + self.places))


model = Bert().to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

for _ in range(100_000):
    words = torch.randint(WORDS, (args.batch_size, 512), device="cuda")
    hidden = torch.rand(words.shape, device="cuda") < 0.15
    with torch.autocast("cuda", torch.bfloat16):
        guesses = model(words.masked_fill(hidden, HIDDEN))
        loss = nn.functional.cross_entropy(guesses.flatten(0, 1), words.masked_fill(~hidden, -100).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
