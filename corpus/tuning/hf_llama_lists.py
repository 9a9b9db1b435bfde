"""Shopping lists put in order by a small Llama: tokens in a file, prompts masked, right padding, accumulation."""

import json
import random
from itertools import pairwise

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

ITEMS = 290  # of the shop, in the order of its shelves
PAD, BOS, SEP, EOS = 0, 1, 2, 3
FIRST = 4
VOCAB = FIRST + ITEMS
IGNORE = -100


class Settings:
    epochs = 3
    micro_batch = 8
    accumulate = 3
    lr = 3e-3
    warmup = 6
    clip = 1.0


def write_lists(name, count, seed, known=frozenset()):
    """`items SEP the same items, by shelf EOS`, one after another in a file; where each begins, in another."""
    rng = random.Random(seed)
    flat, offsets, written = [], [0], set()
    while len(written) < count:
        aisle = rng.randrange(0, ITEMS - 12)
        items = tuple(FIRST + aisle + i for i in rng.sample(range(12), rng.randint(2, 6)))
        if items in known or items in written:
            continue
        written.add(items)
        flat += [BOS, *items, SEP, *sorted(items), EOS]
        offsets.append(len(flat))
    np.array(flat, dtype=np.uint16).tofile(f"{name}.bin")
    with open(f"{name}.json", "w") as file:
        json.dump(offsets, file)
    return written


def read_lists(name):
    tokens = np.fromfile(f"{name}.bin", dtype=np.uint16).astype(np.int64)
    with open(f"{name}.json") as file:
        offsets = json.load(file)
    return [torch.from_numpy(tokens[a:b]) for a, b in pairwise(offsets)]


def pad(rows):
    """The model shifts the labels itself; only what comes after SEP is learned."""
    longest = max(len(row) for row in rows)
    ids = torch.full((len(rows), longest), PAD)
    labels = torch.full((len(rows), longest), IGNORE)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, row in enumerate(rows):
        answer = (row == SEP).nonzero()[0].item() + 1
        ids[i, : len(row)] = row
        labels[i, answer : len(row)] = row[answer:]
        mask[i, : len(row)] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def micro_batches(rows, size, shuffle=None):
    order = list(range(len(rows)))
    if shuffle is not None:
        shuffle.shuffle(order)
    return [pad([rows[i] for i in order[at : at + size]]) for at in range(0, len(order), size)]


def windows(batches, size):
    for at in range(0, len(batches), size):
        yield batches[at : at + size]


def make_model():
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        attn_implementation="eager",
    )
    return LlamaForCausalLM(config)


def held_out_loss(model, rows):
    model.eval()
    total, tokens = 0.0, 0
    with torch.no_grad():
        for batch in micro_batches(rows, 16):
            count = (batch["labels"] != IGNORE).sum().item()
            total += model(**batch).loss.item() * count
            tokens += count
    return total / tokens


def train(settings):
    torch.manual_seed(55)
    shuffle = random.Random(56)
    known = write_lists("train", 290, seed=1)
    write_lists("held", 40, seed=2, known=known)
    rows, held = read_lists("train"), read_lists("held")
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=0.05)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / settings.warmup))
    for epoch in range(settings.epochs):
        model.train()
        steps, shown = 0, 0.0
        for window in windows(micro_batches(rows, settings.micro_batch, shuffle), settings.accumulate):
            learned = sum((batch["labels"] != IGNORE).sum() for batch in window)
            optimizer.zero_grad()
            for batch in window:
                output = model(**batch, num_items_in_batch=learned)
                output.loss.backward()
                shown += output.loss.item()
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            optimizer.step()
            warmup.step()
            steps += 1
        print(f"epoch {epoch} steps {steps} train {shown / steps:.3f} held out {held_out_loss(model, held):.3f}")
    torch.save(model.state_dict(), "lists.pt")


if __name__ == "__main__":
    train(Settings)
