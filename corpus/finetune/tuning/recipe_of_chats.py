"""A recipe: adapters on a chat model, from columns that this file makes."""

import random
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer

from surefoot import Recipe
from surefoot.recipes.finetune import finetune

FOLDER, CONTEXT = "base/inst-tiny", 64
tokenizer = AutoTokenizer.from_pretrained(FOLDER)


def columns(count: int = 48) -> dict:
    drawn = random.Random(2)
    ids = torch.full((count, CONTEXT), tokenizer.pad_token_id)
    mask, labels = torch.zeros(count, CONTEXT, dtype=torch.long), torch.full((count, CONTEXT), -100)
    for row in range(count):
        boats = drawn.randint(1, 60)
        asked = [{"role": "user", "content": f"How many boats, if {boats} are out?"}]
        prompt = tokenizer.apply_chat_template(asked, tokenize=False)
        before = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        answer = f" {boats + 1} boats" + " or so" * drawn.randint(0, 3) + "</s>"
        after = tokenizer(answer, add_special_tokens=False)["input_ids"]
        whole = torch.tensor((before + after)[:CONTEXT])
        ids[row, : len(whole)], mask[row, : len(whole)] = whole, 1
        labels[row, len(before) : len(whole)] = whole[len(before) :]
    following = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)  # the recipe wants the token after each
    return {"input_ids": ids, "attention_mask": mask, "labels": following}


def recipe_of_chats(lr: float = 2e-4) -> Recipe:
    if not Path("rows.safetensors").exists():
        save_file(columns(), "rows.safetensors")
    return finetune(
        model=FOLDER, data="rows.safetensors", method="lora", rank=4, context=CONTEXT, lr=lr, micro_batch_size=4
    )
