"""A small encoder-decoder transformer that transliterates words; teacher forcing in training, greedy decoding in tests."""
import math
from dataclasses import dataclass

import torch
import torch.nn as nn

PAD, BOS, EOS = 0, 1, 2
FIRST = 3
LETTERS = 16


@dataclass(frozen=True)
class Settings:
    dim: int = 64
    heads: int = 4
    layers: int = 2
    feedforward: int = 96
    dropout: float = 0.05
    words: int = 4000
    batch: int = 40
    updates: int = 100
    warmup: int = 12
    lr: float = 4e-3
    max_letters: int = 7
    seed: int = 17


def transliterate(word):
    """Letter i becomes a fixed sign; after a vowel (letters 0 to 3) a letter takes its soft form."""
    signs = []
    for before, letter in zip([None] + word[:-1], word):
        soft = before is not None and before < 4
        signs.append(FIRST + (letter * 5 + 3) % LETTERS + (LETTERS if soft else 0))
    return signs


def make_pairs(count, max_letters, gen):
    pairs = set()
    while len(pairs) < count:
        length = int(torch.randint(3, max_letters + 1, (1,), generator=gen))
        pairs.add(tuple(torch.randint(0, LETTERS, (length,), generator=gen).tolist()))
    pairs = sorted(pairs)
    order = torch.randperm(len(pairs), generator=gen).tolist()
    return [([FIRST + c for c in pairs[i]], [BOS, *transliterate(list(pairs[i])), EOS]) for i in order]


def collate(pairs):
    def stack(rows):
        out = torch.full((len(rows), max(map(len, rows))), PAD)
        for i, row in enumerate(rows):
            out[i, : len(row)] = torch.tensor(row)
        return out

    return stack([s for s, _ in pairs]), stack([t for _, t in pairs])


def sinusoids(length, dim):
    place = torch.arange(length)[:, None].float()
    rate = torch.exp(-math.log(100.0) * torch.arange(0, dim, 2) / dim)
    return torch.stack([(place * rate).sin(), (place * rate).cos()], dim=2).flatten(1)


class Transliterator(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed_source = nn.Embedding(FIRST + LETTERS, cfg.dim, padding_idx=PAD)
        self.embed_target = nn.Embedding(FIRST + 2 * LETTERS, cfg.dim, padding_idx=PAD)
        self.register_buffer("places", sinusoids(32, cfg.dim))
        shape = dict(d_model=cfg.dim, nhead=cfg.heads, dim_feedforward=cfg.feedforward, dropout=cfg.dropout)
        self.encoder = nn.ModuleList(
            [nn.TransformerEncoderLayer(**shape, batch_first=True) for _ in range(cfg.layers)])
        self.decoder = nn.ModuleList(
            [nn.TransformerDecoderLayer(**shape, batch_first=True) for _ in range(cfg.layers)])
        self.logits = nn.Linear(cfg.dim, FIRST + 2 * LETTERS)

    def encode(self, source):
        hidden = self.embed_source(source) + self.places[: source.shape[1]]
        for layer in self.encoder:
            hidden = layer(hidden, src_key_padding_mask=source == PAD)
        return hidden

    def decode(self, prefix, memory, source):
        steps = prefix.shape[1]
        causal = torch.ones(steps, steps, dtype=torch.bool).triu(1)
        hidden = self.embed_target(prefix) + self.places[:steps]
        for layer in self.decoder:
            hidden = layer(hidden, memory, tgt_mask=causal, memory_key_padding_mask=source == PAD)
        return self.logits(hidden)

    def forward(self, source, prefix):
        memory = self.encode(source)
        return self.decode(prefix, memory, source)

    @torch.no_grad()
    def greedy(self, source, limit):
        memory = self.encode(source)
        prefix = torch.full((len(source), 1), BOS)
        done = torch.zeros(len(source), dtype=torch.bool)
        for _ in range(limit):
            token = self.decode(prefix, memory, source)[:, -1].argmax(dim=-1)
            token = token.masked_fill(done, PAD)
            prefix = torch.cat([prefix, token[:, None]], dim=1)
            done |= token == EOS
        return prefix[:, 1:]


def train(model, pairs, cfg):
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, betas=(0.9, 0.98), weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / cfg.warmup, 1.03 - s / cfg.updates))
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    model.train()
    curve = []
    while len(curve) < cfg.updates:
        for rows in torch.randperm(len(pairs)).split(cfg.batch)[:-1]:
            source, target = collate([pairs[i] for i in rows.tolist()])
            logits = model(source, target[:, :-1])
            loss = criterion(logits.transpose(1, 2), target[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            curve.append(loss.item())
            if len(curve) % 25 == 0:
                print(f"update {len(curve)}: loss {sum(curve[-20:]) / 20:.3f}")
            if len(curve) == cfg.updates:
                break
    return sum(curve[-20:]) / 20


def evaluate(model, pairs, cfg):
    """Share of right signs, and of wholly right words, when the model writes the word by itself."""
    model.eval()
    source, target = collate(pairs)
    answer = target[:, 1:]
    guess = model.greedy(source, limit=answer.shape[1])
    real = answer != PAD
    right = (guess == answer) & real
    return (right.sum() / real.sum()).item(), (right == real).all(dim=1).float().mean().item()


def main():
    cfg = Settings()
    torch.manual_seed(cfg.seed)
    pairs = make_pairs(cfg.words, cfg.max_letters, torch.Generator().manual_seed(cfg.seed))
    test, training = pairs[:300], pairs[300:]
    model = Transliterator(cfg)
    loss = train(model, training, cfg)
    for name, part in (("train", training[:300]), ("test", test)):
        signs, words = evaluate(model, part, cfg)
        print(f"{name}: final loss {loss:.3f} greedy sign accuracy {signs:.3f} whole words {words:.3f}")


if __name__ == "__main__":
    main()
