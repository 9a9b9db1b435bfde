"""Additions in decimal, learned by a tiny Llama of transformers: prompts bear no loss, updates weigh their tokens."""

import random
from dataclasses import dataclass, field

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM

SYMBOLS = ["<pad>", "<s>", "</s>", *"0123456789+="]
PAD, BOS, EOS = 0, 1, 2
IGNORED = -100


@dataclass
class Options:
    batch: int = 16
    parts: int = 2
    epochs: int = 2
    lr: float = 5e-3
    warmup: int = 4
    betas: tuple = field(default=(0.9, 0.98))


def encode(text):
    return [SYMBOLS.index(c) for c in text]


class Sums(Dataset):
    def __init__(self, pairs):
        self.rows = []
        for a, b in pairs:
            prompt = [BOS, *encode(f"{a}+{b}=")]
            answer = [*encode(str(a + b)), EOS]
            self.rows.append((prompt, answer))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        prompt, answer = self.rows[index]
        return {"ids": prompt + answer, "labels": [IGNORED] * len(prompt) + answer}


def pad(rows):
    """Rows of unlike length, filled up on the right."""
    longest = max(len(row["ids"]) for row in rows)
    batch = {"input_ids": [], "attention_mask": [], "labels": []}
    for row in rows:
        gap = longest - len(row["ids"])
        batch["input_ids"].append(row["ids"] + [PAD] * gap)
        batch["attention_mask"].append([1] * len(row["ids"]) + [0] * gap)
        batch["labels"].append(row["labels"] + [IGNORED] * gap)
    return {name: torch.tensor(value) for name, value in batch.items()}


def make_model():
    config = LlamaConfig(
        vocab_size=len(SYMBOLS),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=24,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def token_count(batch):
    return int((batch["labels"][:, 1:] != IGNORED).sum())


def batch_loss(model, batch, tokens):
    """The sum of the losses of a batch's answers, divided by `tokens`."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    wanted = batch["labels"][:, 1:].flatten()
    summed = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), wanted, ignore_index=IGNORED, reduction="sum"
    )
    return summed / tokens


def evaluate(model, loader):
    model.eval()
    nats, tokens = 0.0, 0
    with torch.no_grad():
        for batch in loader:
            nats += batch_loss(model, batch, 1).item()
            tokens += token_count(batch)
    model.train()
    return nats / tokens


def groups_of(loader, size):
    group = []
    for batch in loader:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def train(options):
    torch.manual_seed(6)
    pairs = [(a, b) for a in range(40) for b in range(0, 60, 5)]
    random.Random(1).shuffle(pairs)
    held, known = Sums(pairs[:52]), Sums(pairs[52:])
    train_loader = DataLoader(known, batch_size=options.batch, shuffle=True, collate_fn=pad)
    held_loader = DataLoader(held, batch_size=24, collate_fn=pad)
    model = make_model()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=options.betas, weight_decay=0.01)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / options.warmup))
    for epoch in range(options.epochs):
        for group in groups_of(train_loader, options.parts):
            tokens = sum(token_count(batch) for batch in group)
            shown = 0.0
            for batch in group:
                loss = batch_loss(model, batch, tokens)
                loss.backward()
                shown += loss.item()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            warm.step()
            optimizer.zero_grad()
        print(f"epoch {epoch + 1}: {shown:.3f}, new sums {evaluate(model, held_loader):.3f} nats per token")
    model.save_pretrained("sums")


if __name__ == "__main__":
    train(Options())
