"""Fine-tunes a small BERT to classify sentences with the Hugging Face Trainer and keeps the best checkpoint.

Needs numpy, transformers, datasets.
"""

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    EarlyStoppingCallback,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

set_seed(42)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"word{i}" for i in range(3000)]


def build_tokenizer():
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def build_split(n, seed):
    rng = np.random.default_rng(seed)
    text, label = [], []
    for _ in range(n):
        y = int(rng.integers(0, 4))
        length = int(rng.integers(10, 70))
        text.append(" ".join(f"word{w}" for w in rng.integers(y * 500, y * 500 + 1500, length)))
        label.append(y)
    return Dataset.from_dict({"text": text, "label": label})


tokenizer = build_tokenizer()


def tokenize(batch):
    return tokenizer(batch["text"], truncation=True, max_length=64)


train = build_split(96, 0).map(tokenize, batched=True, remove_columns=["text"])
valid = build_split(24, 1).map(tokenize, batched=True, remove_columns=["text"])

config = BertConfig(
    vocab_size=len(WORDS),
    hidden_size=128,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=512,
    num_labels=4,
    id2label={i: f"topic {i}" for i in range(4)},
    label2id={f"topic {i}": i for i in range(4)},
)
model = BertForSequenceClassification(config)


def compute_metrics(prediction):
    logits, labels = prediction
    guess = np.argmax(logits, axis=-1)
    return {"accuracy": float((guess == labels).mean())}


args = TrainingArguments(
    output_dir="bert-topics",
    learning_rate=2e-4,
    per_device_train_batch_size=16,
    per_device_eval_batch_size=16,
    num_train_epochs=2,
    weight_decay=0.01,
    eval_strategy="epoch",
    save_strategy="epoch",
    save_total_limit=1,
    load_best_model_at_end=True,
    metric_for_best_model="accuracy",
    logging_steps=2,
    fp16=torch.cuda.is_available(),
    report_to="none",
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=train,
    eval_dataset=valid,
    processing_class=tokenizer,
    data_collator=DataCollatorWithPadding(tokenizer),
    compute_metrics=compute_metrics,
    callbacks=[EarlyStoppingCallback(early_stopping_patience=2)],
)
trainer.train()
print(trainer.evaluate())
trainer.save_model("bert-topics/final")
