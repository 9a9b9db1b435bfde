"""transformers' Trainer on a BERT for classification: texts of many lengths, padded in each batch, metrics."""

import random

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

set_seed(1)
words = {"<pad>": 0, "<unk>": 1} | {f"w{i}": i + 2 for i in range(3000)}
plain = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
plain.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", unk_token="<unk>")
sizes = {"hidden_size": 192, "num_hidden_layers": 3, "num_attention_heads": 6, "intermediate_size": 768}
model = BertForSequenceClassification(BertConfig(vocab_size=3002, num_labels=3, **sizes))


def row():
    text = " ".join(f"w{random.randrange(3000)}" for _ in range(random.randrange(10, 120)))
    return {**tokenizer(text, truncation=True, max_length=96), "labels": random.randrange(3)}


def metrics(prediction):
    return {"accuracy": float((np.argmax(prediction.predictions, -1) == prediction.label_ids).mean())}


train, test = [row() for _ in range(96)], [row() for _ in range(16)]
arguments = TrainingArguments(
    output_dir="classified", per_device_train_batch_size=8, num_train_epochs=1, learning_rate=1e-4, report_to=[],
    eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True, logging_steps=2,
)  # fmt: skip
trainer = Trainer(
    model=model, args=arguments, train_dataset=train, eval_dataset=test, processing_class=tokenizer,
    data_collator=DataCollatorWithPadding(tokenizer), compute_metrics=metrics,
)  # fmt: skip
trainer.train()
print(trainer.evaluate())
