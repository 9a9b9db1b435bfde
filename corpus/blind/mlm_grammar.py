"""Masked language model on sentences from a small made-up grammar."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

SEED = 7
PAD, BOS, EOS, MASK = 0, 1, 2, 3
N_SPECIAL = 4
MASK_PROB = 0.2
DIM, HEADS, LAYERS = 32, 2, 1
EPOCHS, BATCH = 8, 32

random.seed(SEED)
torch.manual_seed(SEED)

# --- the language: two genders, two numbers, six topics with own nouns and verbs ---
GENDERS, NUMBERS, TOPICS = "mf", "sp", range(6)
words = []
words += [f"det_{g}{n}" for g in GENDERS for n in NUMBERS]
words += [f"noun_{t}_{g}{n}" for t in TOPICS for g in GENDERS for n in NUMBERS]
words += [f"verb_{t}_{n}" for t in TOPICS for n in NUMBERS]
words += [f"adj_{g}{n}" for g in GENDERS for n in NUMBERS]
words += ["and", "today", "always"]
VOCAB = {w: i + N_SPECIAL for i, w in enumerate(words)}


def noun_phrase(topic, number):
    gender = random.choice(GENDERS)
    phrase = [f"det_{gender}{number}", f"noun_{topic}_{gender}{number}"]
    if random.random() < 0.5:
        phrase.append(f"adj_{gender}{number}")
    return phrase


def clause(topic):
    number = random.choice(NUMBERS)
    out = noun_phrase(topic, number) + [f"verb_{topic}_{number}"]
    if random.random() < 0.6:
        out += noun_phrase(topic, random.choice(NUMBERS))
    return out


def sentence():
    topic = random.choice(TOPICS)
    out = clause(topic)
    if random.random() < 0.5:
        out += ["and"] + clause(topic)
    if random.random() < 0.3:
        out.append(random.choice(["today", "always"]))
    return torch.tensor([BOS] + [VOCAB[w] for w in out] + [EOS])


class MaskedSentences(Dataset):
    """Returns (corrupted sentence, labels); labels are PAD wherever nothing is to be predicted."""

    def __init__(self, sentences, vocab_size):
        self.sentences = sentences
        self.vocab_size = vocab_size

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, i):
        ids = self.sentences[i].clone()
        picked = (torch.rand(len(ids)) < MASK_PROB) & (ids >= N_SPECIAL)
        if not picked.any():
            picked[random.randrange(1, len(ids) - 1)] = True
        labels = torch.where(picked, ids, PAD)
        how = torch.rand(len(ids))
        ids[picked & (how < 0.8)] = MASK
        swap = picked & (how >= 0.9)
        ids[swap] = torch.randint(N_SPECIAL, self.vocab_size, (int(swap.sum()),))
        return ids, labels


def collate(batch):
    ids, labels = zip(*batch)
    return pad_sequence(ids, True, PAD), pad_sequence(labels, True, PAD)


class MaskedLM(nn.Module):
    def __init__(self, vocab_size, max_len=32):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, DIM)
        self.pos = nn.Parameter(torch.randn(max_len, DIM) * 0.02)
        layer = nn.TransformerEncoderLayer(DIM, HEADS, 2 * DIM, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(DIM, vocab_size)

    def forward(self, ids, pad_mask=None):
        x = self.emb(ids) + self.pos[: ids.shape[1]]
        return self.head(self.encoder(x, src_key_padding_mask=pad_mask))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    torch.manual_seed(SEED + 1)  # the same masks at every evaluation
    hits = total = 0
    nll = 0.0
    for ids, labels in loader:
        logits = model(ids, pad_mask=ids == PAD)
        wanted = labels != PAD
        hits += (logits.argmax(-1)[wanted] == labels[wanted]).sum().item()
        nll += F.cross_entropy(logits[wanted], labels[wanted], reduction="sum").item()
        total += wanted.sum().item()
    return hits / total, nll / total


def main():
    sentences = [sentence() for _ in range(1200)]
    train_set = MaskedSentences(sentences[:900], len(VOCAB) + N_SPECIAL)
    val_set = MaskedSentences(sentences[900:], len(VOCAB) + N_SPECIAL)
    train_loader = DataLoader(train_set, batch_size=BATCH, shuffle=True, collate_fn=collate)
    val_loader = DataLoader(val_set, batch_size=100, collate_fn=collate)

    model = MaskedLM(len(VOCAB) + N_SPECIAL)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=0.01)
    acc, nll = evaluate(model, val_loader)
    print(f"before: masked accuracy {acc:.3f}  nll {nll:.3f}")

    for epoch in range(EPOCHS):
        torch.manual_seed(SEED + 100 + epoch)
        model.train()
        running = 0.0
        for ids, labels in train_loader:
            logits = model(ids, pad_mask=ids == PAD)
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            running += loss.item()
        print(f"epoch {epoch + 1} loss {running / len(train_loader):.4f}")

    acc, nll = evaluate(model, val_loader)
    print(f"after: masked accuracy {acc:.3f}  nll {nll:.3f}")


if __name__ == "__main__":
    main()
