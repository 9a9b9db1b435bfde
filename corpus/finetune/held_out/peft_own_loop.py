"""Adapters on a chat model in a loop of one's own, with Accelerate, gradient accumulation and a validation set."""

import random

import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

MODEL, LONGEST = "base/chatml-tiny", 160


def chats(count, seed):
    drawn = random.Random(seed)
    for _ in range(count):
        town, colour = drawn.choice(["Ulm", "Graz", "Bath", "Lund"]), drawn.choice(["green", "grey", "white"])
        yield [
            {"role": "system", "content": "You answer in few words."},
            {"role": "user", "content": f"Which colour has door {drawn.randint(1, 500)} in {town}?"},
            {"role": "assistant", "content": f"It is {colour}" + " as before" * drawn.randint(0, 4) + "."},
        ]


class Chats(torch.utils.data.Dataset):
    def __init__(self, tokenizer, count, seed):
        self.rows = []
        for messages in chats(count, seed):
            whole = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
            prompt = tokenizer.apply_chat_template(
                messages[:-1], tokenize=True, add_generation_prompt=True, return_dict=False
            )
            labels = [-100] * len(prompt) + whole[len(prompt) :]
            self.rows.append((whole[:LONGEST], labels[:LONGEST]))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([row + [PAD] * (longest - len(row)) for row, _ in rows])
    labels = torch.tensor([row + [-100] * (longest - len(row)) for _, row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row, _ in rows])
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
tokenizer = AutoTokenizer.from_pretrained(MODEL)
PAD = tokenizer.pad_token_id
model = AutoModelForCausalLM.from_pretrained(MODEL)
model = get_peft_model(model, LoraConfig(r=8, lora_alpha=32, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))
train = torch.utils.data.DataLoader(Chats(tokenizer, 64, 1), batch_size=4, shuffle=True, collate_fn=collate)
held = torch.utils.data.DataLoader(Chats(tokenizer, 16, 2), batch_size=4, collate_fn=collate)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-4)
schedule = get_linear_schedule_with_warmup(optimizer, 2, 16)
model, optimizer, train, held, schedule = accelerator.prepare(model, optimizer, train, held, schedule)
for epoch in range(2):
    model.train()
    for batch in train:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        losses = [model(**batch).loss.item() for batch in held]
    print(epoch, sum(losses) / len(losses))
accelerator.unwrap_model(model).save_pretrained("adapter")
