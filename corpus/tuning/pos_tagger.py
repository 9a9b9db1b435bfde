"""Parts of speech by a bidirectional LSTM: sentences of many lengths, packed, buckets of similar length."""

import random
from collections import Counter

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

TAGS = ["<pad>", "DET", "NOUN", "VERB", "ADJ"]
PAD = 0


def grammar(rnd):
    """A noun phrase, a verb, a noun phrase; some words are nouns after a determiner and verbs elsewhere."""
    sentence = []
    for part in range(rnd.choice([3, 3, 4, 5])):
        if part % 2 == 0:
            sentence.append(("the" if rnd.random() < 0.5 else "a", "DET"))
            sentence += [(f"adj{rnd.randrange(8)}", "ADJ")] * rnd.choice([0, 0, 1, 2])
            sentence.append((f"thing{rnd.randrange(10)}", "NOUN"))
        else:
            sentence.append((f"thing{rnd.randrange(10)}", "VERB"))
    return sentence


class Vocabulary:
    def __init__(self, sentences):
        counts = Counter(word for sentence in sentences for word, _ in sentence)
        self.index = {word: i + 2 for i, (word, _) in enumerate(sorted(counts.items()))}

    def __len__(self):
        return len(self.index) + 2

    def encode(self, sentence):
        words = torch.tensor([self.index.get(word, 1) for word, _ in sentence])
        tags = torch.tensor([TAGS.index(tag) for _, tag in sentence])
        return words, tags


def collate(items):
    words, tags = zip(*items, strict=True)
    lengths = torch.tensor([len(w) for w in words])
    return pad_sequence(words, batch_first=True), pad_sequence(tags, batch_first=True), lengths


class Buckets(torch.utils.data.Sampler):
    """Batches of similar length in a new order every epoch."""

    def __init__(self, lengths, size, rnd):
        self.lengths, self.size, self.rnd = lengths, size, rnd

    def __iter__(self):
        order = sorted(range(len(self.lengths)), key=lambda i: (self.lengths[i], self.rnd.random()))
        batches = [order[i : i + self.size] for i in range(0, len(order), self.size)]
        self.rnd.shuffle(batches)
        return iter(batches)

    def __len__(self):
        return -(-len(self.lengths) // self.size)


class Tagger(nn.Module):
    def __init__(self, words, dim=24, hidden=20):
        super().__init__()
        self.emb = nn.Embedding(words, dim, padding_idx=PAD)
        self.lstm = nn.LSTM(dim, hidden, bidirectional=True, batch_first=True)
        self.dropout = nn.Dropout(0.2)
        self.to_tags = nn.Linear(2 * hidden, len(TAGS))

    def forward(self, words, lengths):
        embedded = self.dropout(self.emb(words))
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.to_tags(self.dropout(states))


def test(tagger, loader):
    tagger.eval()
    correct = words_seen = 0
    with torch.no_grad():
        for words, tags, lengths in loader:
            said = tagger(words, lengths).argmax(dim=-1)
            real = tags != PAD
            correct += (said[real] == tags[real]).sum().item()
            words_seen += real.sum().item()
    return correct / words_seen


def main():
    rnd = random.Random(55)
    torch.manual_seed(55)
    corpus = [grammar(rnd) for _ in range(230)]
    vocab = Vocabulary(corpus[:192])
    train = [vocab.encode(s) for s in corpus[:192]]
    dev = [vocab.encode(s) for s in corpus[192:]]
    buckets = Buckets([len(words) for words, _ in train], 16, rnd)
    train_loader = torch.utils.data.DataLoader(train, batch_sampler=buckets, collate_fn=collate)
    dev_loader = torch.utils.data.DataLoader(dev, batch_size=10, collate_fn=collate)
    tagger = Tagger(len(vocab))
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    optimizer = torch.optim.Adam(tagger.parameters(), lr=1e-2, betas=(0.9, 0.98))
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.2, total_iters=3)
    for epoch in range(3):
        tagger.train()
        for words, tags, lengths in train_loader:
            optimizer.zero_grad()
            logits = tagger(words, lengths)
            loss = criterion(logits.flatten(0, 1), tags.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(tagger.parameters(), 0.3)
            optimizer.step()
        scheduler.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}, tagged right {test(tagger, dev_loader):.3f}")
    torch.save({"tagger": tagger.state_dict(), "vocab": vocab.index}, "tagger.pt")


if __name__ == "__main__":
    main()
