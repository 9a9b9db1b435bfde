"""Toy translation: an encoder-decoder with attention, teacher forcing, greedy decoding (Accelerate)."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

PAD, BOS, EOS = 0, 1, 2
FIRST_WORD = 3
NOUNS, ADJECTIVES, VERBS = range(0, 14), range(14, 24), range(24, 34)
VOCAB = FIRST_WORD + 34
MAX_LEN = 14
HIDDEN = 56
EPOCHS = 6
BATCH = 16
ACCUMULATE = 2
SEED = 13


def source_sentence(rng):
    """[adj] noun verb [adj] noun, as ids 0..33"""
    def phrase():
        adjective = [rng.choice(ADJECTIVES)] if rng.random() < 0.6 else []
        return adjective + [rng.choice(NOUNS)]
    words = phrase() + [rng.choice(VERBS)] + phrase()
    if rng.random() < 0.4:
        words += [rng.choice(VERBS)]
    return words


def translate(words, dictionary):
    """Every word through the dictionary, adjectives after their noun, verbs last."""
    out, verbs, pending = [], [], []
    for w in words:
        if w in ADJECTIVES:
            pending.append(w)
        elif w in NOUNS:
            out += [w] + pending
            pending = []
        else:
            verbs.append(w)
    return [dictionary[w] for w in out + verbs]


def make_pairs(n, rng):
    dictionary = list(range(34))
    rng.shuffle(dictionary)
    sources = set()
    while len(sources) < n:
        sources.add(tuple(source_sentence(rng)))
    pairs = []
    for s in sorted(sources):
        t = translate(s, dictionary)
        pairs.append((torch.tensor([w + FIRST_WORD for w in s]), torch.tensor([w + FIRST_WORD for w in t])))
    rng.shuffle(pairs)
    return pairs


def collate(pairs):
    """Longest source first, as packing wants it; the target gets BOS in front and EOS behind."""
    pairs = sorted(pairs, key=lambda p: -len(p[0]))
    sources = [s for s, _ in pairs]
    targets = [torch.cat([torch.tensor([BOS]), t, torch.tensor([EOS])]) for _, t in pairs]
    lengths = torch.tensor([len(s) for s in sources])
    return pad_sequence(sources, True, PAD), lengths, pad_sequence(targets, True, PAD)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.src_emb = nn.Embedding(VOCAB, HIDDEN, padding_idx=PAD)
        self.tgt_emb = nn.Embedding(VOCAB, HIDDEN, padding_idx=PAD)
        self.encoder = nn.GRU(HIDDEN, HIDDEN, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * HIDDEN, HIDDEN)
        self.decoder = nn.GRU(HIDDEN, HIDDEN, batch_first=True)
        self.combine = nn.Linear(2 * HIDDEN, HIDDEN)
        self.out = nn.Linear(HIDDEN, VOCAB)

    def encode(self, src, lengths):
        packed = pack_padded_sequence(self.src_emb(src), lengths, batch_first=True)
        memory, last = self.encoder(packed)
        memory, _ = pad_packed_sequence(memory, batch_first=True)
        start = torch.tanh(self.bridge(torch.cat([last[0], last[1]], dim=1)))
        return self.bridge(memory), start.unsqueeze(0)

    def decode(self, tokens, memory, src_mask, state):
        h, state = self.decoder(self.tgt_emb(tokens), state)
        scores = h @ memory.transpose(1, 2)
        weights = scores.masked_fill(~src_mask[:, None, :], float("-inf")).softmax(dim=-1)
        return self.out(torch.tanh(self.combine(torch.cat([h, weights @ memory], dim=2)))), state

    def forward(self, src, lengths, tgt_in):
        memory, state = self.encode(src, lengths)
        return self.decode(tgt_in, memory, src != PAD, state)[0]

    @torch.no_grad()
    def greedy(self, src, lengths):
        memory, state = self.encode(src, lengths)
        token = torch.full((len(src), 1), BOS)
        produced = []
        for _ in range(MAX_LEN):
            logits, state = self.decode(token, memory, src != PAD, state)
            token = logits.argmax(-1)
            produced.append(token)
        return torch.cat(produced, dim=1)


def cut(ids):
    ids = ids.tolist()
    return ids[: ids.index(EOS)] if EOS in ids else ids


def exact_match(model, loader):
    model.eval()
    right = total = 0
    for src, lengths, tgt in loader:
        guesses = model.greedy(src, lengths)
        for guess, reference in zip(guesses, tgt[:, 1:]):
            right += cut(guess) == cut(reference)
            total += 1
    return right / total


def main():
    rng = random.Random(SEED)
    torch.manual_seed(SEED)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATE)
    pairs = make_pairs(1150, rng)
    train_loader = DataLoader(pairs[:850], batch_size=BATCH, shuffle=True, collate_fn=collate)
    test_loader = DataLoader(pairs[850:], batch_size=100, collate_fn=collate)
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)
    model, optimizer, train_loader, test_loader = accelerator.prepare(model, optimizer, train_loader, test_loader)
    accelerator.print(f"before: exact match {exact_match(model, test_loader):.3f}")

    for epoch in range(EPOCHS):
        model.train()
        total = 0.0
        for src, lengths, tgt in train_loader:
            with accelerator.accumulate(model):
                logits = model(src, lengths, tgt[:, :-1])
                loss = F.cross_entropy(logits.transpose(1, 2), tgt[:, 1:], ignore_index=PAD)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            total += loss.item()
        accelerator.print(f"epoch {epoch + 1}: loss {total / len(train_loader):.4f}")

    accelerator.print(f"after: exact match {exact_match(model, test_loader):.3f}")


main()
