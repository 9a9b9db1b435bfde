"""transformers' Trainer on a llama: accumulation, gradient checkpointing, an evaluation, a saved checkpoint."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

set_seed(5)
sizes = {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 3, "vocab_size": 6000}
model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=6, num_key_value_heads=2, use_cache=False))
rows = [torch.randint(0, 6000, (96,)) for _ in range(48)]
data = [{"input_ids": row, "labels": row} for row in rows]
arguments = TrainingArguments(
    output_dir="trained", per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=6, bf16=True,
    gradient_checkpointing=True, logging_steps=1, eval_strategy="steps", eval_steps=2, save_steps=2, report_to=[],
    per_device_eval_batch_size=8, warmup_steps=2,
)  # fmt: skip
trainer = Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:8])
print(trainer.train().global_step)
