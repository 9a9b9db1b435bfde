"""A tiny Llama writes menus: words from a token file, padded batches, accumulation weighted by tokens, a plain loop."""

import math
import random
from pathlib import Path

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

PAD, BOS, EOS = 0, 1, 2
ACCUM, EPOCHS = 2, 4
random.seed(3)
torch.manual_seed(3)

# ---- menus: a dish goes with its own sauces, and its price follows from dish and sauce
DISHES = ["soup", "trout", "lamb", "dumplings", "risotto", "omelette", "salad", "stew", "pie", "noodles"]
SAUCES = ["butter", "pepper", "lemon", "mint", "mustard", "cream", "tomato", "ginger"]
PRICES = [f"{pence / 100:.2f}" for pence in range(200, 1700, 5)]
VOCAB = ["<pad>", "<bos>", "<eos>", "today", "with", "and", "costs", ";", *DISHES, *SAUCES, *PRICES]
IDS = {word: number for number, word in enumerate(VOCAB)}


def menu():
    words = ["today"]
    for _ in range(random.randint(1, 5)):
        dish = random.randrange(len(DISHES))
        sauce = (dish + random.choice((0, 1, 3))) % len(SAUCES)
        price = PRICES[(28 * dish + 3 * sauce) % len(PRICES)]
        words += [DISHES[dish], "with", SAUCES[sauce], "costs", price, ";"]
    return [BOS, *(IDS[word] for word in words), EOS]


def write_tokens(path, rows):
    flat = np.array([token for row in rows for token in row])
    flat.astype(np.uint16).tofile(path)


def read_tokens(path):
    tokens = torch.from_numpy(np.fromfile(path, dtype=np.uint16).astype(np.int64))
    starts = (tokens == BOS).nonzero().flatten().tolist()
    return [tokens[a:b] for a, b in zip(starts, [*starts[1:], len(tokens)], strict=True)]


def collate(rows):
    ids = pad_sequence(rows, batch_first=True, padding_value=PAD)
    labels = ids.masked_fill(ids == PAD, -100)
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": labels}


write_tokens(Path("train.bin"), [menu() for _ in range(276)])
write_tokens(Path("held.bin"), [menu() for _ in range(48)])
train_loader = DataLoader(read_tokens("train.bin"), batch_size=8, shuffle=True, collate_fn=collate)
held_loader = DataLoader(read_tokens("held.bin"), batch_size=16, collate_fn=collate)

# ---- model
config = LlamaConfig(
    vocab_size=len(VOCAB),
    hidden_size=48,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    tie_word_embeddings=True,
    pad_token_id=PAD,
    bos_token_id=BOS,
    eos_token_id=EOS,
    use_cache=False,
)
model = LlamaForCausalLM(config)
model.resize_token_embeddings(len(VOCAB), pad_to_multiple_of=64, mean_resizing=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.05)
total_steps = EPOCHS * math.ceil(len(train_loader) / ACCUM)


def rate(step):
    return min((step + 1) / 6, max(0.02, 1 - step / total_steps))


scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)


def groups(loader):
    """Micro-batches that share a step; the last group of an epoch may be smaller."""
    group = []
    for batch in loader:
        group.append(batch)
        if len(group) == ACCUM:
            yield group
            group = []
    if group:
        yield group


def count_targets(batch):
    return (batch["labels"][:, 1:] != -100).sum()


def train_epoch():
    model.train()
    nats, tokens = 0.0, 0
    for group in groups(train_loader):
        in_group = sum(count_targets(batch) for batch in group)
        optimizer.zero_grad()
        for batch in group:
            out = model(**batch)
            loss = out.loss * count_targets(batch) / in_group
            loss.backward()
            nats += loss.item() * in_group.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        tokens += in_group.item()
    return nats / max(tokens, 1)


@torch.no_grad()
def evaluate():
    model.eval()
    nats, tokens = 0.0, 0
    for batch in held_loader:
        count = count_targets(batch).item()
        nats += model(**batch).loss.item() * count
        tokens += count
    return math.exp(nats / max(tokens, 1))


for epoch in range(EPOCHS):
    loss = train_epoch()
    print(f"epoch {epoch} nats {loss:.3f} held perplexity {evaluate():.2f} rate {scheduler.get_last_lr()[0]:.1e}")
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    torch.save({**state, "epoch": epoch + 1}, "menus.pt")

prompt = torch.tensor([[BOS, IDS["today"]]])
written = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=14, do_sample=False)
print(" ".join(VOCAB[token] if token < len(VOCAB) else "?" for token in written[0].tolist()))
