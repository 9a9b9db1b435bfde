"""Trains a ViT to classify pictures with the Trainer, its own optimizer and schedule, and bfloat16 asked for outright.

Needs numpy, transformers.
"""

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    get_cosine_schedule_with_warmup,
)

torch.manual_seed(0)
STEPS = 5


class Pictures(Dataset):
    def __init__(self, n, offset=0):
        self.n, self.offset = n, offset

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(self.offset + i)
        label = int(rng.integers(10))
        picture = rng.standard_normal((3, 96, 96)).astype(np.float32) * 0.5 + label / 10
        return {"pixel_values": torch.from_numpy(picture), "labels": label}


model = ViTForImageClassification(
    ViTConfig(
        hidden_size=192,
        num_hidden_layers=5,
        num_attention_heads=3,
        intermediate_size=768,
        image_size=96,
        patch_size=12,
        num_labels=10,
        hidden_dropout_prob=0.1,
    )
)
no_decay = [p for n, p in model.named_parameters() if p.ndim == 1 or "embeddings" in n]
decay = [p for n, p in model.named_parameters() if not (p.ndim == 1 or "embeddings" in n)]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.05}, {"params": no_decay, "weight_decay": 0.0}], lr=1e-3
)
scheduler = get_cosine_schedule_with_warmup(optimizer, 1, STEPS)


def accuracy(p):
    return {"accuracy": (p.predictions.argmax(1) == p.label_ids).mean().item()}


trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="vit",
        per_device_train_batch_size=16,
        per_device_eval_batch_size=32,
        max_steps=STEPS,
        bf16=True,
        bf16_full_eval=True,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=4,
        save_strategy="no",
        label_smoothing_factor=0.1,
        dataloader_pin_memory=True,
        dataloader_drop_last=True,
        report_to="none",
    ),
    train_dataset=Pictures(96),
    eval_dataset=Pictures(32, 1000),
    compute_metrics=accuracy,
    optimizers=(optimizer, scheduler),
)
trainer.train()
