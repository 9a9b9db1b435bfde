"""Three topics of short texts: a small encoder under the Trainer of transformers."""

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(11)
VOCABULARY, TOPICS, PAD = 60, 3, 0
rng = np.random.default_rng(11)


def write_texts(count):
    texts, topics = [], []
    for _ in range(count):
        topic = int(rng.integers(TOPICS))
        length = int(rng.integers(6, 16))
        words = rng.integers(31, VOCABULARY, length)
        own = rng.random(length) < 0.4
        words[own] = rng.integers(1 + 10 * topic, 11 + 10 * topic, int(own.sum()))
        texts.append(words.tolist())
        topics.append(topic)
    return texts, topics


class Texts(torch.utils.data.Dataset):
    def __init__(self, texts, topics):
        self.texts, self.topics = texts, topics

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, place):
        return {"input_ids": self.texts[place], "labels": self.topics[place]}


def collate(items):
    longest = max(len(each["input_ids"]) for each in items)
    ids = torch.tensor([each["input_ids"] + [PAD] * (longest - len(each["input_ids"])) for each in items])
    labels = torch.tensor([each["labels"] for each in items])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": labels}


def compute_metrics(prediction):
    logits, labels = prediction
    return {"accuracy": float((logits.argmax(-1) == labels).mean())}


train, test = Texts(*write_texts(960)), Texts(*write_texts(240))
config = BertConfig(
    vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=32, num_labels=TOPICS,
)
model = BertForSequenceClassification(config)
arguments = TrainingArguments(
    output_dir="out", num_train_epochs=4, per_device_train_batch_size=32, per_device_eval_batch_size=60,
    learning_rate=3e-3, eval_strategy="epoch", save_strategy="epoch", logging_steps=20, report_to=[], seed=11,
    disable_tqdm=True, use_cpu=True,
)
trainer = Trainer(
    model=model, args=arguments, train_dataset=train, eval_dataset=test, data_collator=collate,
    compute_metrics=compute_metrics,
)
trainer.train()
