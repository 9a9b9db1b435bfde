"""Pretrains a Hugging Face Llama in a loop of its own: accumulation, cosine schedule, resumable checkpoints."""

import math
import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM

SEED = 123
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

SEQ, VOCAB = 20, 72
ACCUM = 4
MAX_STEPS = 10


class Rows(Dataset):
    """Rows of a token stream; the model shifts the labels itself."""

    def __init__(self, rows, seed):
        rng = np.random.default_rng(seed)
        walk = np.cumsum(rng.choice([1, 2, 7], size=rows * SEQ)) % VOCAB
        self.rows = torch.from_numpy(walk.reshape(rows, SEQ))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i].clone()}


config = LlamaConfig(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=SEQ,
    bos_token_id=0,
    eos_token_id=0,
)
model = LlamaForCausalLM(config)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)


def cosine(step):
    return max(0.1, 0.5 * (1 + math.cos(math.pi * step / MAX_STEPS)))


sched = torch.optim.lr_scheduler.LambdaLR(opt, cosine)
loader = DataLoader(Rows(200, 1), batch_size=4, shuffle=True, drop_last=True)
held_out = DataLoader(Rows(16, 2), batch_size=8)


def evaluate():
    model.eval()
    losses = []
    with torch.no_grad():
        for batch in held_out:
            losses.append(model(**batch).loss)
    model.train()
    return torch.stack(losses).mean().item()


model.train()
step, micro = 0, 0
for batch in loader:
    loss = model(**batch).loss / ACCUM
    loss.backward()
    micro += 1
    if micro % ACCUM:
        continue
    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    opt.zero_grad(set_to_none=True)
    step += 1
    if step % 5 == 0:
        print(f"step {step}: loss {loss.item() * ACCUM:.4f}, held out {evaluate():.4f}, norm {grad_norm.item():.3f}")
        state = {"model": model.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "step": step}
        torch.save(state, "llama.pt")
    if step == MAX_STEPS:
        break
