"""A language model in both directions, as ELMo: two GRUs, one table of tokens that is input and output of both.

The forward GRU predicts the next token from those before, the backward GRU the one before from those that follow.
"""

import argparse
import math
import random

import torch
from torch import nn
from torch.nn import functional as F

VOCAB = 20
PAD = 0


def grammar(rng):
    """For each token the few that may follow it."""
    return {token: rng.sample(range(1, VOCAB), 3) for token in range(1, VOCAB)}


def sentences(rules, count, seed):
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        words = [rng.randrange(1, VOCAB)]
        for _ in range(rng.randint(14, 24)):
            words.append(rng.choices(rules[words[-1]], weights=(6, 3, 1))[0])
        found.append(torch.tensor(words))
    return found


def collate(rows):
    """Padded sentences, and the same sentences reversed, both padded at the end."""
    pad = nn.utils.rnn.pad_sequence
    ahead = pad(rows, batch_first=True, padding_value=PAD)
    back = pad([row.flip(0) for row in rows], batch_first=True, padding_value=PAD)
    return ahead, back


class BothWays(nn.Module):
    def __init__(self, dim=40, drop=0.1):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        nn.init.normal_(self.tokens.weight[1:], std=dim**-0.5)
        self.ahead = nn.GRU(dim, dim, batch_first=True)
        self.back = nn.GRU(dim, dim, batch_first=True)
        self.drop = nn.Dropout(drop)
        self.ahead_head = nn.Linear(dim, VOCAB)
        self.back_head = nn.Linear(dim, VOCAB)
        self.ahead_head.weight = self.tokens.weight
        self.back_head.weight = self.tokens.weight

    def forward(self, ahead, back):
        a, _ = self.ahead(self.drop(self.tokens(ahead)))
        b, _ = self.back(self.drop(self.tokens(back)))
        return self.ahead_head(self.drop(a)), self.back_head(self.drop(b))


def summed_loss(model, ahead, back):
    """The sum over the true tokens of both directions, and how many they are."""
    logits_a, logits_b = model(ahead[:, :-1], back[:, :-1])
    loss_a = F.cross_entropy(logits_a.flatten(0, 1), ahead[:, 1:].flatten(), ignore_index=PAD, reduction="sum")
    loss_b = F.cross_entropy(logits_b.flatten(0, 1), back[:, 1:].flatten(), ignore_index=PAD, reduction="sum")
    return loss_a + loss_b, 2 * int((ahead[:, 1:] != PAD).sum())


def run():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=8e-3)
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args([])
    torch.manual_seed(4)
    rules = grammar(random.Random(4))
    train = torch.utils.data.DataLoader(sentences(rules, 384, 5), args.batch, shuffle=True, collate_fn=collate)
    valid = torch.utils.data.DataLoader(sentences(rules, 90, 6), args.batch, collate_fn=collate)
    model = BothWays()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        model.train()
        for ahead, back in train:
            summed, count = summed_loss(model, ahead, back)
            loss = summed / count
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
        model.eval()
        total, tokens = 0.0, 0
        with torch.no_grad():
            for ahead, back in valid:
                summed, count = summed_loss(model, ahead, back)
                total, tokens = total + summed.item(), tokens + count
        print(f"epoch {epoch}: perplexity {math.exp(total / tokens):.2f} of {VOCAB - 1}")
    torch.save(model.state_dict(), "both_ways.pt")
    again = BothWays()
    again.load_state_dict(torch.load("both_ways.pt"))
    assert again.ahead_head.weight is again.tokens.weight is again.back_head.weight


if __name__ == "__main__":
    run()
