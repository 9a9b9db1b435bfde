"""Sequence to sequence: T5 learns to shorten sentences, in a plain loop."""

import random

import torch
from torch import nn
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

torch.manual_seed(3)
tokenizer = AutoTokenizer.from_pretrained("base/t5-tiny")
model = AutoModelForSeq2SeqLM.from_pretrained("base/t5-tiny")


def sentences(count: int):
    drawn = random.Random(21)
    who, what = ["the miller", "a ferry", "the flood", "my brother"], ["the bridge", "the river", "a boat", "the door"]
    for _ in range(count):
        a, b, n = drawn.choice(who), drawn.choice(what), drawn.randint(0, 4)
        yield f"summarise: in spring {a} came to {b}" + ", slowly" * n, f"{a} came to {b}" + " slowly" * (n % 3)


def collate(rows):
    sources, targets = zip(*rows)
    encoded = tokenizer(list(sources), padding=True, truncation=True, max_length=96, return_tensors="pt")
    labels = tokenizer(list(targets), padding=True, truncation=True, max_length=48, return_tensors="pt")
    encoded["labels"] = labels["input_ids"].masked_fill(labels["attention_mask"] == 0, -100)
    return encoded


loader = torch.utils.data.DataLoader(list(sentences(80)), batch_size=8, shuffle=True, collate_fn=collate)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
model.train()
for epoch in range(2):
    for batch in loader:
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(epoch, loss.item())
model.save_pretrained("tuned")
