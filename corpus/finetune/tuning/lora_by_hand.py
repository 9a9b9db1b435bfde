"""LoRA written by hand, a plain loop, and merged weights at the end."""

import copy
import math
import random

import torch
import torch.nn.functional as F
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer

torch.manual_seed(1)
FOLDER = "base/inst-tiny"
tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForCausalLM.from_pretrained(FOLDER)


class LoRA(nn.Module):
    def __init__(self, base: nn.Linear, rank: int = 4, alpha: int = 16):
        super().__init__()
        self.base, self.scaling = base, alpha / rank
        self.lora_a = nn.Parameter(torch.empty(rank, base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))

    def forward(self, x):
        return self.base(x) + self.scaling * F.linear(F.linear(x, self.lora_a), self.lora_b)


model.requires_grad_(False)
for layer in model.model.layers:
    layer.self_attn.q_proj = LoRA(layer.self_attn.q_proj)
    layer.self_attn.v_proj = LoRA(layer.self_attn.v_proj)


def batch(drawn: random.Random, count: int = 6):
    prompts, answers = [], []
    for _ in range(count):
        weather, meal = drawn.choice(["dreadful", "fine", "cold"]), drawn.choice(["soup", "bread", "fish", "stew"])
        prompts.append(f"<s>[INST] What was the {meal} like on day {drawn.randint(1, 300)}? [/INST]")
        answers.append(f" The {meal} was {weather}" + " as always" * drawn.randint(0, 3) + ".</s>")
    rows = [
        (tokenizer(a, add_special_tokens=False)["input_ids"], tokenizer(b, add_special_tokens=False)["input_ids"])
        for a, b in zip(prompts, answers)
    ]
    longest = max(len(a) + len(b) for a, b in rows)
    ids = torch.full((count, longest), tokenizer.pad_token_id)
    mask, labels = torch.zeros(count, longest, dtype=torch.long), torch.full((count, longest), -100)
    for number, (before, after) in enumerate(rows):
        whole = torch.tensor(before + after)
        ids[number, : len(whole)], mask[number, : len(whole)] = whole, 1
        labels[number, len(before) : len(whole)] = whole[len(before) :]
    return ids, mask, labels


parameters = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(parameters, lr=5e-4)
drawn = random.Random(8)
model.train()
for step in range(16):
    ids, mask, labels = batch(drawn)
    logits = model(input_ids=ids, attention_mask=mask).logits
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    print(step, loss.item())

model.eval()
ids, mask, labels = batch(random.Random(99))
with torch.no_grad():
    tuned = model(input_ids=ids, attention_mask=mask).logits
    merged = copy.deepcopy(model)
    for layer in merged.model.layers:
        for name in ("q_proj", "v_proj"):
            adapted = getattr(layer.self_attn, name)
            adapted.base.weight += adapted.scaling * adapted.lora_b @ adapted.lora_a
            setattr(layer.self_attn, name, adapted.base)
    merged(input_ids=ids, attention_mask=mask)
torch.save(merged.state_dict(), "merged.pt")
