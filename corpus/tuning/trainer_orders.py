"""Orders at a counter, each word tagged as amount, size, dish or nothing: a tiny BERT under the Trainer."""

import random

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForTokenClassification, Trainer, TrainingArguments, set_seed

AMOUNTS, SIZES = ["one", "two", "three", "four", "half"], ["small", "large", "extra", "big", "tiny"]
DISHES = ["soup", "tea", "cake", "rice", "pie", "fish", "salad", "toast"]
FILLERS = ["please", "i", "want", "and", "a", "with", "no", "thanks", "hello", "today", "for", "me"]
TAGS = ["other", "amount", "size", "dish"]
PAD = 0
WORDS = ["<pad>", "<cls>", *AMOUNTS, *SIZES, *DISHES, *FILLERS]


def order(rng):
    """Words and tags; `half` and `extra` say something else before a filler."""
    words, tags = [], []
    for _ in range(rng.randint(1, 3)):
        for _ in range(rng.randint(0, 3)):
            words.append(rng.choice(FILLERS))
            tags.append(0)
        words += [rng.choice(AMOUNTS), rng.choice(SIZES), rng.choice(DISHES)]
        tags += [1, 2, 3]
        if rng.random() < 0.4:
            words += [rng.choice(["half", "extra", "cake"]), "thanks"]
            tags += [0, 0]
    return words, tags


class Orders(Dataset):
    def __init__(self, orders):
        self.orders = orders

    def __len__(self):
        return len(self.orders)

    def __getitem__(self, index):
        words, tags = self.orders[index]
        ids = [1] + [WORDS.index(word) for word in words]
        return {"input_ids": ids, "labels": [-100, *tags]}


def pad(rows):
    """Input ids, attention mask and labels of one width."""
    width = max(len(row["input_ids"]) for row in rows)
    ids = torch.full((len(rows), width), PAD)
    labels = torch.full((len(rows), width), -100)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for n, row in enumerate(rows):
        length = len(row["input_ids"])
        ids[n, :length] = torch.tensor(row["input_ids"])
        labels[n, :length] = torch.tensor(row["labels"])
        mask[n, :length] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def metrics(prediction):
    logits, labels = prediction
    guesses = np.argmax(logits, axis=-1)
    known = labels != -100
    return {"accuracy": float((guesses == labels)[known].mean())}


class WeightedTrainer(Trainer):
    """Tags that matter count twice."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"]
        outputs = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        weight = torch.tensor([1.0, 2.0, 2.0, 2.0])
        loss = torch.nn.functional.cross_entropy(
            outputs.logits.flatten(0, 1), labels.flatten(), weight=weight, ignore_index=-100
        )
        return (loss, outputs) if return_outputs else loss


def build_model():
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        num_labels=len(TAGS),
        pad_token_id=PAD,
    )
    return BertForTokenClassification(config)


def main():
    set_seed(44)
    rng = random.Random(44)
    orders = {tuple(map(tuple, order(rng))) for _ in range(700)}
    orders = sorted(orders)
    rng.shuffle(orders)
    train_set, held_set = Orders(orders[:400]), Orders(orders[400:475])
    arguments = TrainingArguments(
        output_dir="orders",
        num_train_epochs=3,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=32,
        learning_rate=4e-3,
        warmup_steps=6,
        lr_scheduler_type="linear",
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=10,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    model = build_model()
    trainer = WeightedTrainer(
        model=model,
        args=arguments,
        train_dataset=train_set,
        eval_dataset=held_set,
        data_collator=pad,
        compute_metrics=metrics,
    )
    trainer.train()
    model.save_pretrained("orders")


if __name__ == "__main__":
    main()
