# Slot tagging of delivery orders: each token gets a BIO tag. Own little grammar, pretrained word vectors, BiGRU.
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

SEED = 21
PAD_TAG = -100
FOODS = [f"food{i}" for i in range(40)]
NAMES = [f"name{i}" for i in range(40)]
PLACES = [f"place{i}" for i in range(40)]
COUNTS = ["one", "two", "three", "four", "ten"]
FILLER = ["please", "well", "um", "hello", "now", "today"]


def make_sentence(rng):
    """Names and places share words (a name after 'at' is a place), so context matters."""
    out = []

    def say(*pairs):
        out.extend(pairs)

    for _ in range(rng.randint(0, 5)):
        say((rng.choice(FILLER), "O"))
    for _ in range(rng.randint(1, 4)):
        kind = rng.random()
        if kind < 0.4:
            if rng.random() < 0.6:
                say((rng.choice(COUNTS), "B-QTY"))
            say((rng.choice(FOODS), "B-FOOD"))
            if rng.random() < 0.5:
                say((rng.choice(FOODS), "I-FOOD"))
        elif kind < 0.7:
            say(("for", "O"), (rng.choice(NAMES + PLACES), "B-PER"))
            if rng.random() < 0.4:
                say((rng.choice(NAMES), "I-PER"))
        else:
            say(("at", "O"))
            if rng.random() < 0.5:
                say(("the", "O"))
            say((rng.choice(PLACES + NAMES), "B-LOC"))
        if rng.random() < 0.3:
            say(("and", "O"))
    if rng.random() < 0.3:
        say((rng.choice(COUNTS), "B-TIME"), ("oclock", "I-TIME"))
    return [w for w, _ in out], [t for _, t in out]


def word_vectors(vocab, dim, rng):
    """Stands in for vectors from a large corpus: words of one kind lie close together; digits and glue words unseen."""
    centers = {k: rng.normal(size=dim) for k in ("food", "name", "place")}
    table = np.zeros((len(vocab), dim), dtype=np.float32)
    for word, i in vocab.items():
        kind = word.rstrip("0123456789")
        if kind in centers:
            table[i] = centers[kind] + 0.7 * rng.normal(size=dim)
    return torch.from_numpy(table)


class Tagger(nn.Module):
    def __init__(self, vectors, n_tags, hidden=24, n_mix=2):
        super().__init__()
        self.emb = nn.Embedding.from_pretrained(vectors, freeze=False, padding_idx=0)
        self.rnn = nn.GRU(vectors.size(1), hidden, batch_first=True, bidirectional=True)
        self.mix = nn.ModuleList([nn.Linear(2 * hidden, 2 * hidden) for _ in range(n_mix)])
        self.out = nn.Linear(2 * hidden, n_tags)

    def forward(self, ids, lengths):
        packed = pack_padded_sequence(self.emb(ids), lengths, batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        for layer in self.mix:
            h = h + F.relu(layer(h))
        return self.out(h)


def collate(batch):
    ids = [torch.tensor(x) for x, _ in batch]
    tags = [torch.tensor(y) for _, y in batch]
    lengths = torch.tensor([len(x) for x in ids])
    return (pad_sequence(ids, batch_first=True), lengths,
            pad_sequence(tags, batch_first=True, padding_value=PAD_TAG))


def evaluate(model, loader, tag_id):
    """Token accuracy and micro F1 over the tags other than O."""
    model.eval()
    right = total = tp = n_pred = n_gold = 0
    with torch.no_grad():
        for ids, lengths, tags in loader:
            pred = model(ids, lengths).argmax(-1)
            real = tags != PAD_TAG
            pred, gold = pred[real], tags[real]
            right, total = right + (pred == gold).sum().item(), total + len(gold)
            tp += ((pred == gold) & (gold != tag_id["O"])).sum().item()
            n_pred += (pred != tag_id["O"]).sum().item()
            n_gold += (gold != tag_id["O"]).sum().item()
    return right / total, 2 * tp / max(n_pred + n_gold, 1)


def main():
    torch.manual_seed(SEED)
    rng = random.Random(SEED)
    train, test = [[make_sentence(rng) for _ in range(n)] for n in (350, 150)]

    vocab, tag_id = {"<pad>": 0, "<unk>": 1}, {}
    for words, tags in train:
        for w, t in zip(words, tags):
            vocab.setdefault(w, len(vocab))
            tag_id.setdefault(t, len(tag_id))

    def encode(data):
        return [([vocab.get(w, 1) for w in words], [tag_id[t] for t in tags]) for words, tags in data]

    train_loader = DataLoader(encode(train), batch_size=16, shuffle=True, collate_fn=collate)
    test_loader = DataLoader(encode(test), batch_size=64, collate_fn=collate)
    model = Tagger(word_vectors(vocab, 16, np.random.default_rng(SEED)), len(tag_id))
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.1)

    print("untrained: accuracy %.4f, F1 %.4f" % evaluate(model, test_loader, tag_id))
    for epoch in range(5):
        model.train()
        losses = []
        for ids, lengths, tags in train_loader:
            logits = model(ids, lengths)
            loss = F.cross_entropy(logits.transpose(1, 2), tags, ignore_index=PAD_TAG)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        print("epoch %d: loss %.4f, test accuracy %.4f, F1 %.4f" % (epoch, np.mean(losses), *evaluate(model, test_loader, tag_id)))
    print("final: accuracy %.4f, F1 %.4f" % evaluate(model, test_loader, tag_id))


if __name__ == "__main__":
    main()
