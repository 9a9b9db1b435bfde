"""Fine-tunes a DistilBERT to tag tokens, with the Trainer, length grouping and a frozen embedding.

Needs numpy, transformers.
"""

import random

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    DistilBertConfig,
    DistilBertForTokenClassification,
    Trainer,
    TrainingArguments,
)

random.seed(5)
torch.manual_seed(5)
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG"]
VOCAB, PAD = 4000, 0


class Sentences(Dataset):
    def __init__(self, n):
        self.rows = []
        for _ in range(n):
            ids, tags = [], []
            while len(ids) < 100 and (len(ids) < 12 or random.random() > 0.02):
                if random.random() < 0.15:
                    kind = random.randrange(3)
                    span = random.randint(1, 3)
                    ids += [100 + kind * 200 + random.randrange(200) for _ in range(span)]
                    tags += [1 + 2 * kind] + [2 + 2 * kind] * (span - 1)
                else:
                    ids.append(random.randrange(1000, VOCAB))
                    tags.append(0)
            # only the first piece of a word is labelled
            labels = [t if random.random() > 0.1 else -100 for t in tags]
            self.rows.append({"input_ids": ids, "labels": labels})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    longest = max(len(r["input_ids"]) for r in rows)
    longest += -longest % 8

    def pad(key, value):
        return torch.tensor([r[key] + [value] * (longest - len(r[key])) for r in rows])

    ids = pad("input_ids", PAD)
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": pad("labels", -100)}


def metrics(p):
    guess, gold = p.predictions.argmax(-1), p.label_ids
    keep = gold != -100
    named = keep & (gold > 0)
    return {
        "accuracy": float((guess[keep] == gold[keep]).mean()),
        "recall": float((guess[named] == gold[named]).mean()) if named.any() else 0.0,
        "tags": int(np.unique(guess).size),
    }


def main():
    config = DistilBertConfig(
        vocab_size=VOCAB, dim=192, hidden_dim=768, n_layers=3, n_heads=6, num_labels=len(TAGS), pad_token_id=PAD
    )
    model = DistilBertForTokenClassification(config)
    for p in model.distilbert.embeddings.parameters():
        p.requires_grad = False
    print("trainable:", sum(p.numel() for p in model.parameters() if p.requires_grad))
    args = TrainingArguments(
        "ner-out",
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        max_steps=6,
        learning_rate=5e-4,
        warmup_steps=2,
        lr_scheduler_type="cosine",
        logging_steps=1,
        save_steps=3,
        save_only_model=True,
        eval_strategy="steps",
        eval_steps=3,
        dataloader_num_workers=1,
        remove_unused_columns=False,
        report_to=[],
        seed=5,
    )
    trainer = Trainer(
        model,
        args,
        data_collator=collate,
        train_dataset=Sentences(64),
        eval_dataset=Sentences(16),
        compute_metrics=metrics,
    )
    result = trainer.train()
    trainer.log_metrics("train", result.metrics)
    trainer.save_state()


if __name__ == "__main__":
    main()
