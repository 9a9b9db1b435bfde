"""Support tickets sorted into five queues by a tiny BERT: ragged texts, padded per batch, weight decay by groups."""

import copy

import numpy as np
import torch
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

PAD, CLS, SEP, UNK = 0, 1, 2, 3
VOCAB, QUEUES, LONGEST = 120, 5, 20
EPOCHS, BATCH, RATE = 4, 16, 2e-3


def read_tickets(count, seed):
    """Each queue has words of its own, mixed with words that mean nothing."""
    rng = np.random.default_rng(seed)
    texts, queues = [], []
    for _ in range(count):
        queue = int(rng.integers(QUEUES))
        length = int(rng.integers(4, 26))
        telling = 20 + 20 * queue + rng.integers(0, 20, length)
        common = rng.integers(4, VOCAB, length)
        texts.append(np.where(rng.random(length) < 0.65, telling, common).tolist())
        queues.append(queue)
    return texts, queues


def encode(text):
    return [CLS, *text[: LONGEST - 2], SEP]


def make_examples(texts, queues):
    return [{"ids": encode(text), "queue": queue} for text, queue in zip(texts, queues, strict=False)]


def collate(examples):
    width = max(len(example["ids"]) for example in examples)
    ids = torch.full((len(examples), width), PAD)
    for row, example in enumerate(examples):
        ids[row, : len(example["ids"])] = torch.tensor(example["ids"])
    mask = (ids != PAD).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([e["queue"] for e in examples])}


def build():
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=LONGEST,
        pad_token_id=PAD,
        num_labels=QUEUES,
    )
    return BertForSequenceClassification(config)


def decay_groups(model):
    plain = ("bias", "LayerNorm.weight")
    decayed, rest = [], []
    for name, parameter in model.named_parameters():
        (rest if name.endswith(plain) else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}]


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = seen = 0
    for batch in loader:
        labels = batch.pop("labels")
        logits = model(**batch).logits
        right += (logits.argmax(-1) == labels).sum().item()
        seen += len(labels)
    return right / seen


def run():
    torch.manual_seed(404)
    texts, queues = read_tickets(500, seed=11)
    examples = make_examples(texts, queues)
    held, train = examples[:84], examples[84:]
    train_loader = DataLoader(train, batch_size=BATCH, shuffle=True, collate_fn=collate)
    held_loader = DataLoader(held, batch_size=32, collate_fn=collate)

    model = build()
    optimizer = torch.optim.AdamW(decay_groups(model), lr=RATE)
    steps = EPOCHS * len(train_loader)
    scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=steps // 10, num_training_steps=steps)

    best, best_state = 0.0, None
    for epoch in range(EPOCHS):
        model.train()
        running = 0.0
        for batch in train_loader:
            out = model(**batch)
            optimizer.zero_grad()
            out.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            running += out.loss.item()
        accuracy = evaluate(model, held_loader)
        if accuracy > best:
            best = accuracy
            best_state = copy.deepcopy(model.state_dict())
        print(f"epoch {epoch} loss {running / len(train_loader):.3f} accuracy {accuracy:.3f}")
    model.load_state_dict(best_state)
    print(f"best {evaluate(model, held_loader):.3f}")


if __name__ == "__main__":
    run()
