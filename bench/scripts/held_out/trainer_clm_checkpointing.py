"""Trains a GPT-2 from scratch on packed text with the Trainer: gradient checkpointing, accumulation, a callback.

Needs transformers, datasets.
"""

import math
import random
from itertools import chain

import torch
from datasets import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

BLOCK = 192
VOCAB = 5000


class Throughput(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if torch.cuda.is_available():
            print(f"step {state.global_step}: peak {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB")
            torch.cuda.reset_peak_memory_stats()

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            print(f"perplexity {math.exp(min(logs['loss'], 20)):.1f}")


def documents(n):
    return Dataset.from_dict(
        {"input_ids": [[random.randrange(1, VOCAB) for _ in range(random.randint(50, 400))] + [0] for _ in range(n)]}
    )


def group_texts(examples):
    joined = list(chain(*examples["input_ids"]))
    total = (len(joined) // BLOCK) * BLOCK
    blocks = [joined[i : i + BLOCK] for i in range(0, total, BLOCK)]
    return {"input_ids": blocks, "labels": [list(b) for b in blocks], "attention_mask": [[1] * BLOCK for _ in blocks]}


set_seed(0)
packed = documents(60).map(group_texts, batched=True)
split = packed.train_test_split(test_size=0.1, seed=0)
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=VOCAB, n_positions=BLOCK, n_embd=192, n_layer=6, n_head=6, bos_token_id=0, eos_token_id=0)
)
model.config.use_cache = False
print(f"{model.num_parameters() / 1e6:.1f}M parameters")

training_args = TrainingArguments(
    output_dir="clm-out",
    per_device_train_batch_size=2,
    gradient_accumulation_steps=4,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    max_steps=4,
    learning_rate=6e-4,
    weight_decay=0.1,
    adam_beta2=0.95,
    max_grad_norm=1.0,
    logging_steps=1,
    save_strategy="no",
    bf16=torch.cuda.is_available() and torch.cuda.is_bf16_supported(),
    tf32=True if torch.cuda.is_available() else None,
    optim="adamw_torch_fused" if torch.cuda.is_available() else "adamw_torch",
    report_to="none",
)
trainer = Trainer(
    model=model,
    args=training_args,
    train_dataset=split["train"],
    eval_dataset=split["test"],
    data_collator=default_data_collator,
    callbacks=[Throughput()],
)
trainer.train()
print(trainer.evaluate())
