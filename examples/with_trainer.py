import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from surefoot.integrations.transformers import SurefootCallback

set_seed(0)
text = (torch.arange(256)[:, None] + torch.arange(32)) % 64  # counts, from a different number in each row
tokens = [{"input_ids": row, "labels": row} for row in text]
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=64, n_layer=2, n_head=2))

trainer = Trainer(
    model,
    TrainingArguments("checkpoints", max_steps=30, learning_rate=1e-3, report_to="none", use_cpu=True),
    train_dataset=tokens,
    callbacks=[SurefootCallback("runs/trainer")],
)
trainer.train()
