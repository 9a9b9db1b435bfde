"""Trains a Hugging Face Llama with the Hugging Face Trainer."""

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

set_seed(3)
VOCAB, LENGTH = 64, 16


class Walks(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        moves = torch.tensor([1, 3, 8])[torch.randint(0, 3, (n, LENGTH), generator=g)]
        self.rows = moves.cumsum(1) % VOCAB

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids = self.rows[i]
        return {"input_ids": ids, "labels": ids.clone()}


config = LlamaConfig(
    vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=4, max_position_embeddings=LENGTH, bos_token_id=0, eos_token_id=0,
)  # fmt: skip
model = LlamaForCausalLM(config)
arguments = TrainingArguments(
    output_dir="trainer",
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    max_steps=8,
    learning_rate=1e-3,
    lr_scheduler_type="cosine",
    warmup_steps=2,
    logging_steps=4,
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
)
trainer = Trainer(model=model, args=arguments, train_dataset=Walks(160, 1), eval_dataset=Walks(16, 2))
trainer.train()
print(trainer.evaluate())
