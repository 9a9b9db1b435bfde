"""Moods of short sentences by a small BERT of transformers: own tokens, dynamic padding, buckets, warm-up and decay."""

import random
import tempfile
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

PAD, CLS, SEP, NOT = 0, 1, 2, 3
MOODS = {"glad": range(4, 8), "cross": range(8, 12), "calm": range(12, 16)}
FILLERS = range(16, 40)


def sentence(rng):
    mood = rng.randrange(3)
    words = rng.choices(FILLERS, k=rng.randint(2, 7))
    for _ in range(2):
        words.insert(rng.randrange(len(words)), rng.choice(list(MOODS.values())[mood]))
    if rng.random() < 0.2:
        words.insert(0, NOT)
        mood = (mood + 1) % 3
    return {"ids": [CLS, *words, SEP], "mood": mood}


def corpus(count, seed):
    rng = random.Random(seed)
    return [sentence(rng) for _ in range(count)]


def collate(rows):
    ids = pad_sequence([torch.tensor(r["ids"]) for r in rows], batch_first=True, padding_value=PAD)
    mask = (ids != PAD).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([r["mood"] for r in rows])}


def build():
    config = BertConfig(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=16,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        initializer_range=0.1,
        num_labels=3,
        pad_token_id=PAD,
    )
    return BertForSequenceClassification(config)


def parameter_groups(model, decay):
    spared = ("bias", "LayerNorm.weight")
    with_decay = [p for n, p in model.named_parameters() if not n.endswith(spared)]
    without = [p for n, p in model.named_parameters() if n.endswith(spared)]
    return [{"params": with_decay, "weight_decay": decay}, {"params": without, "weight_decay": 0.0}]


def score(model, loader):
    model.eval()
    right, loss, seen = 0, 0.0, 0
    for batch in loader:
        with torch.no_grad():
            answer = model(**batch)
        right += (answer.logits.argmax(-1) == batch["labels"]).sum().item()
        loss += answer.loss.item() * len(batch["labels"])
        seen += len(batch["labels"])
    return {"right": right / seen, "loss": loss / seen}


def run(epochs=4, lr=3e-3, folder="."):
    torch.manual_seed(41)
    train_rows = corpus(400, seed=10)
    known = {tuple(r["ids"]) for r in train_rows}
    test_rows = [r for r in corpus(90, seed=11) if tuple(r["ids"]) not in known]
    train_loader = DataLoader(train_rows, batch_size=20, shuffle=True, collate_fn=collate)
    test_loader = DataLoader(test_rows, batch_size=32, collate_fn=collate)
    model = build()
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.01), lr=lr)
    steps = epochs * len(train_loader)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    best = Path(folder) / "best.pt"
    best_loss = float("inf")
    for epoch in range(epochs):
        model.train()
        running, seen = 0.0, 0
        for batch in train_loader:
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            running += loss.item() * len(batch["labels"])
            seen += len(batch["labels"])
        result = score(model, test_loader)
        if result["loss"] < best_loss:
            best_loss = result["loss"]
            torch.save(model.state_dict(), best)
        print(f"epoch {epoch}: {running / seen:.3f}, {result}")
    again = build()
    again.load_state_dict(torch.load(best))
    print("best", score(again, test_loader))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run(folder=folder)
