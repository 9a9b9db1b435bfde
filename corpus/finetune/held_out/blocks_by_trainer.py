"""Continued training of a causal model with transformers' Trainer: texts with an end each, padded by the collator."""

import random

from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

tokenizer = AutoTokenizer.from_pretrained("base/gpt2-tiny")
tokenizer.add_special_tokens({"pad_token": "<|padding|>"})
model = AutoModelForCausalLM.from_pretrained("base/gpt2-tiny")
model.resize_token_embeddings(len(tokenizer))


def texts(count: int):
    drawn = random.Random(31)
    things = ["boats", "herons", "stones", "bridges", "doors", "brothers"]
    for _ in range(count):
        yield "In the town are " + " and ".join(
            f"{drawn.randint(2, 99)} {each}" for each in drawn.sample(things, drawn.randint(1, 5))
        )


rows = [tokenizer(each + tokenizer.eos_token, truncation=True, max_length=96) for each in texts(72)]
args = TrainingArguments(
    output_dir="out",
    learning_rate=5e-5,
    max_steps=12,
    per_device_train_batch_size=6,
    logging_steps=4,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
)
collate = DataCollatorForLanguageModeling(tokenizer, mlm=False)
trainer = Trainer(model, args=args, train_dataset=rows, data_collator=collate)
trainer.train()
