"""Adapts a frozen T5 with IA3 vectors, then a second copy with prompt tuning, in the same hand-written loop.

Needs transformers, peft.
"""

import torch
from peft import IA3Config, PromptTuningConfig, TaskType, get_peft_model
from transformers import T5Config, T5ForConditionalGeneration

torch.manual_seed(31)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def frozen_base():
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=3000,
            d_model=160,
            d_kv=32,
            d_ff=640,
            num_layers=3,
            num_heads=5,
            decoder_start_token_id=0,
            pad_token_id=0,
            eos_token_id=1,
            tie_word_embeddings=False,
        )
    )


def batch(size=8):
    source = torch.randint(2, 3000, (size, 48))
    keep = torch.randint(20, 49, (size, 1))
    mask = (torch.arange(48)[None] < keep).long()
    labels = torch.randint(2, 3000, (size, 16))
    labels[:, -1] = 1
    return {"input_ids": source * mask, "attention_mask": mask, "labels": labels}


CONFIGS = {
    "ia3": IA3Config(task_type=TaskType.SEQ_2_SEQ_LM, target_modules=["k", "v", "wo"], feedforward_modules=["wo"]),
    "prompt": PromptTuningConfig(task_type=TaskType.SEQ_2_SEQ_LM, num_virtual_tokens=12),
}

for name, config in CONFIGS.items():
    model = get_peft_model(frozen_base(), config)
    model.print_trainable_parameters()
    model.to(device)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    model.train()
    for step in range(4):
        inputs = {k: v.to(device) for k, v in batch().items()}
        with torch.autocast(device_type=device.type, dtype=torch.bfloat16):
            loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(name, step, round(loss.item(), 4))
    model.save_pretrained(f"adapter-{name}")
    del model, optimizer
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
