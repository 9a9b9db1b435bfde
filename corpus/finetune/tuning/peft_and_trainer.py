"""Instructions by LoRA: peft adapters, transformers' Trainer, and prompts that carry no loss."""

import random

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

FOLDER, LIMIT = "base/inst-tiny", 96
tokenizer = AutoTokenizer.from_pretrained(FOLDER)
tokenizer.padding_side = "right"


def examples(count: int) -> list[tuple[str, str]]:
    drawn = random.Random(3)
    birds, colours = ["heron", "finch", "owl", "swift"], ["green", "grey", "white", "brown"]
    found = []
    for _ in range(count):
        bird, colour = drawn.choice(birds), drawn.choice(colours)
        asked = f"Name the colour of the {bird} at door {drawn.randint(1, 99)}"
        found.append((asked, f"The {bird} is {colour}" + " and old" * drawn.randint(0, 4) + "."))
    return found


def encode(asked: str, answer: str) -> dict:
    messages = [{"role": "user", "content": asked}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False)
    before = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    after = tokenizer(" " + answer + tokenizer.eos_token, add_special_tokens=False)["input_ids"]
    ids = (before + after)[:LIMIT]
    labels = ([-100] * len(before) + after)[:LIMIT]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


class Rows(torch.utils.data.Dataset):
    def __init__(self, pairs):
        self.rows = [encode(*pair) for pair in pairs]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


model = AutoModelForCausalLM.from_pretrained(FOLDER)
config = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.05, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
model = get_peft_model(model, config)
model.print_trainable_parameters()
collate = DataCollatorForSeq2Seq(tokenizer, padding=True)
args = TrainingArguments(
    output_dir="out",
    learning_rate=2e-4,
    max_steps=12,
    per_device_train_batch_size=4,
    logging_steps=4,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
)
trainer = Trainer(model, args=args, train_dataset=Rows(examples(64)), data_collator=collate)
trainer.train()
model.save_pretrained("adapter")
merged = model.merge_and_unload()
merged.save_pretrained("merged")
