"""Supervised fine-tuning of a chat model with TRL: all weights, on conversations."""

import random

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

PLACES, THINGS = ["river", "harbour", "mill", "bridge", "orchard"], ["boats", "doors", "herons", "brothers", "stones"]


def conversations(count: int) -> list[dict]:
    drawn = random.Random(5)
    rows = []
    for _ in range(count):
        place, thing, number = drawn.choice(PLACES), drawn.choice(THINGS), drawn.randint(2, 90)
        asked = f"How many {thing} are at the {place} near the {drawn.choice(PLACES)}?"
        answer = f"There are {number} {thing} at the {place}." + " I counted them." * drawn.randint(0, 3)
        rows.append({"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]})
    return rows


tokenizer = AutoTokenizer.from_pretrained("base/chatml-tiny")
model = AutoModelForCausalLM.from_pretrained("base/chatml-tiny")
rows = conversations(64)
train = Dataset.from_list(rows)
args = SFTConfig(
    output_dir="out",
    learning_rate=2e-5,
    max_steps=12,
    per_device_train_batch_size=4,
    assistant_only_loss=True,
    max_length=128,
    logging_steps=4,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
)
trainer = SFTTrainer(model, args=args, train_dataset=train, processing_class=tokenizer)
trainer.train()
trainer.save_model("tuned")
