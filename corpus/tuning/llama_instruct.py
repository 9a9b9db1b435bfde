"""Instruction tuning of a Hugging Face Llama: prompts masked, rows padded on the right, losses weighted by tokens."""

import argparse
import math

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

IGNORE = -100
BOS, EOS, PAD, SEP = 0, 1, 2, 3
FIRST, VOCAB = 4, 48


def conversations(n, seed):
    """A prompt of letters; the answer is the prompt again, each letter moved by one."""
    g = torch.Generator().manual_seed(seed)
    for _ in range(n):
        prompt = torch.randint(FIRST, VOCAB, (int(torch.randint(3, 7, (), generator=g)),), generator=g)
        answer = FIRST + (prompt - FIRST + 1) % (VOCAB - FIRST)
        yield {"prompt": [BOS, *prompt.tolist(), SEP], "answer": [*answer.tolist(), EOS]}


def collate(samples):
    width = max(len(s["prompt"]) + len(s["answer"]) for s in samples)
    ids, labels, mask = [], [], []
    for s in samples:
        row = s["prompt"] + s["answer"]
        room = width - len(row)
        ids.append(row + [PAD] * room)
        labels.append([IGNORE] * len(s["prompt"]) + s["answer"] + [IGNORE] * room)
        mask.append([1] * len(row) + [0] * room)
    return {"input_ids": torch.tensor(ids), "labels": torch.tensor(labels), "attention_mask": torch.tensor(mask)}


def build():
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    return LlamaForCausalLM(config)


def answer_loss(model, batch):
    """The sum over answer tokens, and how many there are."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    predicted, wanted = logits[:, :-1], batch["labels"][:, 1:]
    total = F.cross_entropy(predicted.reshape(-1, VOCAB), wanted.reshape(-1), ignore_index=IGNORE, reduction="sum")
    return total, (wanted != IGNORE).sum()


@torch.no_grad()
def perplexity(model, batches):
    model.eval()
    nats, count = 0.0, 0
    for batch in batches:
        total, tokens = answer_loss(model, batch)
        nats += total.item()
        count += tokens.item()
    model.train()
    return math.exp(nats / count)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--micro", type=int, default=2)
    parser.add_argument("--lr", type=float, default=4e-3)
    args = parser.parse_args()
    torch.manual_seed(1001)
    loader = torch.utils.data.DataLoader(list(conversations(768, 7)), batch_size=16, shuffle=True, collate_fn=collate)
    fresh = torch.utils.data.DataLoader(list(conversations(32, 8)), batch_size=16, collate_fn=collate)
    model = build()
    model.train()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=args.lr, total_steps=args.steps, pct_start=0.2)
    stream = iter(loader)
    for step in range(args.steps):
        parts = [next(stream) for _ in range(args.micro)]
        tokens = sum((part["labels"][:, 1:] != IGNORE).sum() for part in parts)
        shown = 0.0
        for part in parts:
            total, _ = answer_loss(model, part)
            loss = total / tokens
            loss.backward()
            shown += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad()
        if (step + 1) % 8 == 0:
            print(f"step {step + 1}: loss {shown:.3f}, perplexity of new answers {perplexity(model, fresh):.2f}")
    model.save_pretrained("instructed")


if __name__ == "__main__":
    main()
