"""A classifier on a pretrained encoder: a plain loop over all weights."""

import random

import torch
import torch.nn.functional as F
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer

torch.manual_seed(4)
FOLDER = "base/bert-tiny"
tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForSequenceClassification.from_pretrained(FOLDER, num_labels=2)


def reviews(count: int, seed: int):
    drawn = random.Random(seed)
    good, bad = ["wonderful", "fine", "positive"], ["dreadful", "cold", "negative"]
    things = ["soup", "bread", "weather", "door"]
    labels = [drawn.randint(0, 1) for _ in range(count)]
    texts = [
        f"the {drawn.choice(things)} was {drawn.choice(good if label else bad)}" + " again" * drawn.randint(0, 5)
        for label in labels
    ]
    return list(zip(texts, labels))


def collate(rows):
    texts, labels = zip(*rows)
    return tokenizer(list(texts), padding=True, truncation=True, max_length=32, return_tensors="pt"), torch.tensor(labels)


train = torch.utils.data.DataLoader(reviews(96, 1), batch_size=8, shuffle=True, collate_fn=collate)
held = torch.utils.data.DataLoader(reviews(32, 2), batch_size=8, collate_fn=collate)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01)
for epoch in range(2):
    model.train()
    for words, labels in train:
        loss = F.cross_entropy(model(**words).logits, labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    right = 0
    with torch.no_grad():
        for words, labels in held:
            right += (model(**words).logits.argmax(-1) == labels).sum().item()
    print(epoch, right / 32)
torch.save(model.state_dict(), "moods.pt")
