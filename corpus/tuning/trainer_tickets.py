"""Tags of support tickets with the Trainer of transformers: several tags to a ticket, rare ones weighted up."""

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

PAD, CLS, UNKNOWN, FIRST = 0, 1, 2, 3
TAGS = ["billing", "login", "crash", "refund"]
COMMON, PER_TAG, LONGEST = 260, 3, 14


def write_tickets(count, seed):
    """Words of the tags that a ticket has, among words that say nothing; padded on the right."""
    rng = np.random.default_rng(seed)
    ids = np.zeros((count, LONGEST), dtype=np.int64)
    tags = (rng.random((count, len(TAGS))) < [0.4, 0.3, 0.25, 0.2]).astype(np.float32)
    for row in range(count):
        length = rng.integers(8, LONGEST)
        words = FIRST + rng.integers(0, COMMON, length)
        spots = rng.permutation(length)[: 2 * len(TAGS)].reshape(len(TAGS), -1)
        for tag in np.flatnonzero(tags[row]):
            words[spots[tag]] = FIRST + COMMON + tag * PER_TAG + rng.integers(0, PER_TAG, len(spots[tag]))
        ids[row, : length + 1] = [CLS, *words]
    return ids, tags


class Tickets(Dataset):
    def __init__(self, ids, tags, hide=0.0):
        self.ids, self.tags, self.hide = ids, tags, hide

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        words = torch.from_numpy(self.ids[index])
        if self.hide:  # words that the model must do without
            hidden = (torch.rand(len(words)) < self.hide) & (words >= FIRST)
            words = words.masked_fill(hidden, UNKNOWN)
        return {"input_ids": words, "labels": torch.from_numpy(self.tags[index])}


def collate(items):
    input_ids = torch.stack([item["input_ids"] for item in items])
    labels = torch.stack([item["labels"] for item in items])
    return {"input_ids": input_ids, "attention_mask": (input_ids != PAD).long(), "labels": labels}


class TagTrainer(Trainer):
    def __init__(self, *args, pos_weight, **kwargs):
        super().__init__(*args, **kwargs)
        self.criterion = nn.BCEWithLogitsLoss(pos_weight=pos_weight)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"]
        outputs = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        logits = outputs.logits
        loss = self.criterion(logits, labels)
        return (loss, outputs) if return_outputs else loss


class Report(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        numbers = {k: v for k, v in (logs or {}).items() if k in ("loss", "eval_loss", "eval_f1", "learning_rate")}
        print(state.global_step, " ".join(f"{k} {float(v):.4f}" for k, v in numbers.items()))


def measure(prediction):
    guess = prediction.predictions > 0.0
    truth = prediction.label_ids > 0.5
    hit = (guess & truth).sum()
    return {"f1": 2 * hit / max(1, guess.sum() + truth.sum())}


def main():
    set_seed(21)
    ids, tags = write_tickets(420, seed=5)
    train, test = slice(0, 340), slice(340, 420)
    config = BertConfig(
        vocab_size=FIRST + COMMON + PER_TAG * len(TAGS),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LONGEST,
        num_labels=len(TAGS),
        pad_token_id=PAD,
        initializer_range=0.1,
    )
    model = BertForSequenceClassification(config)
    share = torch.from_numpy(tags[train].mean(axis=0))
    arguments = TrainingArguments(
        output_dir="tickets",
        per_device_train_batch_size=20,
        per_device_eval_batch_size=40,
        num_train_epochs=4,
        learning_rate=5e-3,
        warmup_steps=5,
        lr_scheduler_type="cosine",
        weight_decay=0.01,
        logging_steps=17,
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        seed=21,
    )
    trainer = TagTrainer(
        model=model,
        args=arguments,
        train_dataset=Tickets(ids[train], tags[train], hide=0.1),
        eval_dataset=Tickets(ids[test], tags[test]),
        data_collator=collate,
        compute_metrics=measure,
        callbacks=[Report()],
        pos_weight=((1 - share) / share).sqrt(),
    )
    trainer.train()
    print(f"f1 {trainer.evaluate()['eval_f1']:.3f}")
    trainer.save_model("tickets/final")


if __name__ == "__main__":
    main()
