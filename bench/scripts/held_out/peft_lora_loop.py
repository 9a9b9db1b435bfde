"""Adapts a frozen half-precision Gemma with LoRA (and DoRA on the MLP) in a hand-written loop, then merges.

Needs transformers, peft.
"""

import os

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import GemmaConfig, GemmaForCausalLM, get_linear_schedule_with_warmup

torch.manual_seed(0)
device = "cuda"
batch_size, epochs, lr, max_len, vocab = 4, 1, 3e-4, 96, 6000


def examples(n):
    g = torch.Generator().manual_seed(2)
    rows = []
    for _ in range(n):
        prompt = torch.randint(4, vocab, (int(torch.randint(10, 40, (1,), generator=g)),), generator=g)
        answer = torch.randint(4, vocab, (int(torch.randint(5, 50, (1,), generator=g)),), generator=g)
        ids = torch.cat([prompt, answer])[:max_len]
        labels = ids.clone()
        labels[: len(prompt)] = -100
        rows.append({"input_ids": ids, "labels": labels})
    return rows


def collate(rows):
    length = max(len(r["input_ids"]) for r in rows)
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    labels = torch.full_like(ids, -100)
    mask = torch.zeros_like(ids)
    for i, r in enumerate(rows):
        n = len(r["input_ids"])
        ids[i, :n], labels[i, :n], mask[i, :n] = r["input_ids"], r["labels"], 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


base = GemmaForCausalLM(
    GemmaConfig(
        vocab_size=vocab,
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=256,
    )
).to(torch.bfloat16)
base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
base.enable_input_require_grads()
model = get_peft_model(
    base,
    LoraConfig(
        r=8,
        lora_alpha=16,
        lora_dropout=0.05,
        bias="none",
        target_modules=["q_proj", "v_proj", "gate_proj", "down_proj"],
        use_dora=True,
        task_type="CAUSAL_LM",
    ),
)
model.print_trainable_parameters()
model = model.to(device)

loader = DataLoader(examples(24), shuffle=True, collate_fn=collate, batch_size=batch_size)
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=lr)
lr_scheduler = get_linear_schedule_with_warmup(optimizer, 2, len(loader) * epochs)
for epoch in range(epochs):
    model.train()
    total_loss = 0
    for step, batch in enumerate(loader):
        batch = {k: v.to(device) for k, v in batch.items()}
        outputs = model(**batch)
        loss = outputs.loss
        total_loss += loss.detach().float()
        loss.backward()
        optimizer.step()
        lr_scheduler.step()
        optimizer.zero_grad()
        print(f"{epoch=} {step=} loss={loss.item():.4f}")
    train_epoch_loss = total_loss / len(loader)
    print(f"{epoch=}: {train_epoch_loss=} ppl={torch.exp(train_epoch_loss)}")

os.makedirs("lora-adapter", exist_ok=True)
model.save_pretrained("lora-adapter")
merged = model.merge_and_unload()
print(type(merged).__name__, sum(p.numel() for p in merged.parameters()))
