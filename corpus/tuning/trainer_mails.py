"""Mails put into folders by a small BERT built here, trained with the Trainer of Hugging Face; metrics of our own."""

import random
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

FOLDERS = ("work", "family", "shop", "travel")
PHRASES = {
    "work": "please review the report before our meeting with the client about this contract on monday",
    "family": "grandma and the kids send love see you at dinner for the birthday cake on sunday",
    "shop": "your order has shipped use this discount code to save on shoes before the sale ends",
    "travel": "your flight to lisbon boards at the gate bring the passport and the hotel booking with you",
}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted({word for phrase in PHRASES.values() for word in phrase.split()})]
NUMBERS = {word: number for number, word in enumerate(WORDS)}
COMMON = ["the", "on", "at", "to", "and", "your", "you", "with", "this", "before"]


def write_mail(folder, rng):
    """Words of the folder, mixed with those that occur anywhere."""
    length = rng.randint(5, 18)
    words = [rng.choice(PHRASES[folder].split() if rng.random() < 0.4 else COMMON) for _ in range(length)]
    return " ".join(words)


class Mails(Dataset):
    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.labels = [rng.randrange(len(FOLDERS)) for _ in range(count)]
        self.texts = [write_mail(FOLDERS[label], rng) for label in self.labels]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        ids = [NUMBERS.get(word, 1) for word in self.texts[index].split()]
        return {"input_ids": [NUMBERS["[CLS]"], *ids, NUMBERS["[SEP]"]], "labels": self.labels[index]}


def collate(mails):
    longest = max(len(mail["input_ids"]) for mail in mails)
    ids = torch.zeros(len(mails), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, mail in enumerate(mails):
        ids[row, : len(mail["input_ids"])] = torch.tensor(mail["input_ids"])
        mask[row, : len(mail["input_ids"])] = 1
    labels = torch.tensor([mail["labels"] for mail in mails])
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def compute_metrics(prediction):
    logits, labels = prediction
    guesses = np.argmax(logits, axis=-1)
    f1 = []
    for folder in range(len(FOLDERS)):
        hits = ((guesses == folder) & (labels == folder)).sum()
        f1.append(2 * hits / max(1, (guesses == folder).sum() + (labels == folder).sum()))
    return {"accuracy": float((guesses == labels).mean()), "f1": float(np.mean(f1))}


def build_model():
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        num_labels=len(FOLDERS),
        pad_token_id=0,
    )
    return BertForSequenceClassification(config)


def main():
    set_seed(53)
    model = build_model()
    train_set, held_set = Mails(480, seed=1), Mails(90, seed=2)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=4,
            per_device_train_batch_size=24,
            per_device_eval_batch_size=32,
            learning_rate=3e-3,
            weight_decay=0.01,
            warmup_steps=8,
            lr_scheduler_type="linear",
            max_grad_norm=1.0,
            eval_strategy="epoch",
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
            seed=53,
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=train_set,
            eval_dataset=held_set,
            data_collator=collate,
            compute_metrics=compute_metrics,
        )
        trainer.train()
        print({name: round(value, 3) for name, value in trainer.evaluate().items()})
        model.save_pretrained(f"{folder}/mails")


if __name__ == "__main__":
    main()
