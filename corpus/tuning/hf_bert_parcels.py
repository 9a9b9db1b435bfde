"""Complaints about parcels sorted into four drawers by a small BERT: dict batches, two groups of weights, warm-up."""

import random

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

DRAWERS = {
    "late": ["waiting", "overdue", "week", "days", "delayed", "still", "yesterday", "schedule"],
    "broken": ["smashed", "dented", "torn", "wet", "cracked", "pieces", "crushed", "leaking"],
    "lost": ["vanished", "missing", "nowhere", "neighbour", "depot", "tracking", "gone", "empty"],
    "refund": ["money", "charged", "twice", "customs", "fee", "invoice", "pay", "price"],
}
FILLER = [
    "the",
    "a",
    "my",
    "parcel",
    "box",
    "is",
    "was",
    "and",
    "please",
    "help",
    "from",
    "to",
    "in",
    "it",
    "has",
    "been",
    "me",
    "now",
    "again",
    "courier",
]
WORDS = ["[PAD]", "[CLS]", "[SEP]", *FILLER, *(word for words in DRAWERS.values() for word in words)]
INDEX = {word: i for i, word in enumerate(WORDS)}
EPOCHS, BATCH, MAX_WORDS = 4, 16, 18


def complaint(rng, drawer):
    """Mostly filler, with two to four words that tell the drawer, and sometimes one of another drawer."""
    names = list(DRAWERS)
    words = rng.choices(FILLER, k=rng.randint(3, MAX_WORDS - 6))
    words += rng.choices(DRAWERS[names[drawer]], k=rng.randint(2, 4))
    if rng.random() < 0.3:
        words.append(rng.choice(DRAWERS[rng.choice(names)]))
    rng.shuffle(words)
    return " ".join(words)


class Complaints(Dataset):
    def __init__(self, size, seed, known=()):
        rng = random.Random(seed)
        self.rows = []
        while len(self.rows) < size:
            drawer = rng.randrange(len(DRAWERS))
            text = complaint(rng, drawer)
            if text not in known:
                self.rows.append((text, drawer))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        text, drawer = self.rows[i]
        return {"ids": [INDEX["[CLS]"], *(INDEX[w] for w in text.split()), INDEX["[SEP]"]], "label": drawer}


def collate(rows):
    longest = max(len(row["ids"]) for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row["ids"])] = torch.tensor(row["ids"])
        mask[i, : len(row["ids"])] = 1
    labels = torch.tensor([row["label"] for row in rows])
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def weight_groups(model, decay):
    plain, none = [], []
    for name, parameter in model.named_parameters():
        (none if name.endswith("bias") or "LayerNorm" in name else plain).append(parameter)
    return [{"params": plain, "weight_decay": decay}, {"params": none, "weight_decay": 0.0}]


def build_model():
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        initializer_range=0.06,
        num_labels=len(DRAWERS),
    )
    return BertForSequenceClassification(config)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss_sum, right, seen = 0.0, 0, 0
    for batch in loader:
        output = model(**batch)
        loss_sum += output.loss.item() * len(batch["labels"])
        right += (output.logits.argmax(dim=-1) == batch["labels"]).sum().item()
        seen += len(batch["labels"])
    return loss_sum / seen, right / seen


def main():
    torch.manual_seed(17)
    train_set = Complaints(320, seed=1)
    valid_set = Complaints(72, seed=2, known={text for text, _ in train_set.rows})
    train_loader = DataLoader(train_set, batch_size=BATCH, shuffle=True, collate_fn=collate)
    valid_loader = DataLoader(valid_set, batch_size=32, collate_fn=collate)
    model = build_model()
    optimizer = torch.optim.AdamW(weight_groups(model, 0.01), lr=2e-3)
    total = EPOCHS * len(train_loader)
    schedule = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=total // 10, num_training_steps=total)
    for epoch in range(EPOCHS):
        model.train()
        running = 0.0
        for batch in train_loader:
            output = model(**batch)
            loss = output.loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            running += loss.item()
        valid_loss, accuracy = evaluate(model, valid_loader)
        print(f"epoch {epoch}: {running / len(train_loader):.3f} / {valid_loss:.3f}, accuracy {accuracy:.2%}")
    torch.save(model.state_dict(), "parcels.pt")


if __name__ == "__main__":
    main()
