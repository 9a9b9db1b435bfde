"""Opinions on hotels of unlike length: packed sequences in a bidirectional GRU, attention over words, early stop."""

import random
import typing

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

GOOD = ["clean", "friendly", "quiet", "lovely", "sunny", "fresh"]
BAD = ["dirty", "rude", "noisy", "awful", "damp", "stale"]
PLAIN = ["room", "bed", "staff", "view", "breakfast", "lobby", "pool", "night", "towel", "street", "window", "stairs"]
VOCABULARY = {word: i for i, word in enumerate(["<pad>", "not", "very", "but", *GOOD, *BAD, *PLAIN])}


class Opinion(typing.NamedTuple):
    words: torch.Tensor
    good: int


def write_opinion(rng):
    """`not` turns the word that follows it; what comes after `but` counts twice."""
    words, score, weight = [], 0, 1
    for _ in range(rng.randint(2, 6)):
        good = rng.random() < 0.5
        turned = rng.random() < 0.25
        words += [rng.choice(PLAIN)] + (["not"] if turned else []) + [rng.choice(GOOD if good else BAD)]
        score += weight * (1 if good != turned else -1)
        if rng.random() < 0.2:
            words.append("but")
            weight = 2
    return words, score


def opinions(count, seed):
    rng, found = random.Random(seed), []
    while len(found) < count:
        words, score = write_opinion(rng)
        if score:
            found.append(Opinion(torch.tensor([VOCABULARY[w] for w in words]), int(score > 0)))
    return found


def collate(items):
    lengths = torch.tensor([len(item.words) for item in items])
    words = pad_sequence([item.words for item in items], batch_first=True, padding_value=0)
    return words, lengths, torch.tensor([item.good for item in items])


class OpinionNet(nn.Module):
    def __init__(self, vocabulary, width=24, hidden=24):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width, padding_idx=0)
        self.gru = nn.GRU(width, hidden, batch_first=True, bidirectional=True)
        self.focus = nn.Linear(2 * hidden, 1)
        self.drop = nn.Dropout(0.2)
        self.verdict = nn.Linear(2 * hidden, 2)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embed(words), lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        padding = torch.arange(words.shape[1]) >= lengths[:, None]
        focus = self.focus(states).squeeze(-1).masked_fill(padding, -torch.inf).softmax(dim=1)
        summary = (focus[:, :, None] * states).sum(dim=1)
        return self.verdict(self.drop(summary)), focus


class EarlyStop:
    def __init__(self, patience):
        self.patience, self.bad, self.best, self.weights = patience, 0, float("inf"), None

    def __call__(self, loss, model):
        if loss < self.best:
            self.best, self.bad = loss, 0
            self.weights = [p.detach().clone() for p in model.parameters()]
        else:
            self.bad += 1
        return self.bad > self.patience

    def restore(self, model):
        with torch.no_grad():
            for p, kept in zip(model.parameters(), self.weights or [], strict=False):
                p.copy_(kept)


def validate(model, loader):
    model.eval()
    loss, right, count = 0.0, 0, 0
    with torch.no_grad():
        for words, lengths, good in loader:
            logits, _ = model(words, lengths)
            loss += nn.functional.cross_entropy(logits, good, reduction="sum").item()
            right += (logits.argmax(1) == good).sum().item()
            count += len(good)
    return loss / count, right / count


def pretrained_words(width, seed=3):
    """Vectors in which words that occur in like places are close, as from an older model."""
    g = torch.Generator().manual_seed(seed)
    topics = torch.tensor([0] + [1] * 3 + [2] * len(GOOD) + [2] * len(BAD) + [3] * len(PLAIN))
    vectors = torch.randn(4, width, generator=g)[topics] * 0.3 + 0.3 * torch.randn(len(topics), width, generator=g)
    vectors[0] = 0
    return {"weight": vectors}


def fit(epochs=6, thaw=2):
    torch.manual_seed(23)
    train = torch.utils.data.DataLoader(opinions(560, 1), batch_size=28, shuffle=True, collate_fn=collate)
    valid = torch.utils.data.DataLoader(opinions(110, 2), batch_size=32, collate_fn=collate)
    model = OpinionNet(len(VOCABULARY))
    model.embed.load_state_dict(pretrained_words(24))
    model.embed.requires_grad_(False)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=8e-3)
    stop = EarlyStop(patience=2)
    for epoch in range(epochs):
        if epoch == thaw:
            model.embed.requires_grad_(True)
            optimizer.add_param_group({"params": model.embed.parameters(), "lr": 2e-3})
        model.train()
        for words, lengths, good in train:
            logits, focus = model(words, lengths)
            loss = nn.functional.cross_entropy(logits, good)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        held, right = validate(model, valid)
        print(f"epoch {epoch + 1}: train {loss.item():.3f}, valid {held:.3f}, {right:.1%} right")
        if stop(held, model):
            break
    stop.restore(model)
    torch.save(model.state_dict(), "opinions.pt")


if __name__ == "__main__":
    fit()
