"""Full fine-tuning of GPT-2 on instructions, in a plain loop."""

import random

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

torch.manual_seed(0)
tokenizer = AutoTokenizer.from_pretrained("base/gpt2-tiny")
tokenizer.pad_token = tokenizer.eos_token
model = AutoModelForCausalLM.from_pretrained("base/gpt2-tiny")


def pairs(count: int) -> list[tuple[str, str]]:
    drawn = random.Random(1)
    names, trades = ["Ida", "Tom", "Ruth", "Max"], ["miller", "ferryman", "builder", "baker"]
    found = []
    for _ in range(count):
        name, trade = drawn.choice(names), drawn.choice(trades)
        answer = f" {name} is the {trade}" + " of the town" * drawn.randint(0, 3)
        found.append((f"### Instruction: who is {name}, number {drawn.randint(1, 400)}?\n### Response:", answer))
    return found


def collate(rows):
    texts = [prompt + answer + tokenizer.eos_token for prompt, answer in rows]
    encoded = tokenizer(texts, padding=True, truncation=True, max_length=128, return_tensors="pt")
    labels = encoded["input_ids"].masked_fill(encoded["attention_mask"] == 0, -100)
    for row, (prompt, _) in enumerate(rows):
        labels[row, : len(tokenizer(prompt)["input_ids"])] = -100
    return {**encoded, "labels": labels}


loader = torch.utils.data.DataLoader(pairs(96), batch_size=8, shuffle=True, collate_fn=collate)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)
schedule = get_cosine_schedule_with_warmup(optimizer, 2, 24)
model.train()
for epoch in range(2):
    for batch in loader:
        loss = model(**batch).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    print(epoch, loss.item())
model.save_pretrained("tuned")
