"""Menus and their prices by a small Llama of transformers: prompts without loss, accumulated by tokens, best kept."""

import random
from types import SimpleNamespace

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

PAD, BOS, EOS, ASK = 0, 1, 2, 3
DISH, DIGIT = 4, 20
cfg = SimpleNamespace(rows=10, parts=2, epochs=3, lr=8e-3, warmup=5, clip=1.0, ignore=-100)


def order(rng):
    """A prompt of one to five dishes and the answer: the number of dishes and the price of each."""
    dishes = [rng.randrange(16) for _ in range(rng.randint(1, 5))]
    prompt = [BOS, *(DISH + d for d in dishes), ASK]
    answer = [DIGIT + len(dishes), *(DIGIT + d % 9 for d in dishes), EOS]
    return prompt, answer


def orders(count, seed, without=()):
    rng = random.Random(seed)
    taken = {tuple(p) for p, _ in without}
    return [(p, a) for p, a in (order(rng) for _ in range(count)) if tuple(p) not in taken]


def batch_of(rows):
    longest = max(len(p) + len(a) for p, a in rows)
    ids, labels, mask = [], [], []
    for prompt, answer in rows:
        empty = longest - len(prompt) - len(answer)
        ids.append(prompt + answer + [PAD] * empty)
        labels.append([cfg.ignore] * len(prompt) + answer + [cfg.ignore] * empty)
        mask.append([1] * (longest - empty) + [0] * empty)
    return torch.tensor(ids), torch.tensor(labels), torch.tensor(mask)


def updates_of(rows, rng):
    """The batches of an epoch, in groups that make one update together."""
    rows = rng.sample(rows, len(rows))
    batches = [batch_of(rows[i : i + cfg.rows]) for i in range(0, len(rows), cfg.rows)]
    return [batches[i : i + cfg.parts] for i in range(0, len(batches), cfg.parts)]


def loss_of(model, batch):
    """Sum over the tokens that bear loss, and how many they are."""
    ids, labels, mask = batch
    logits = model(input_ids=ids, attention_mask=mask).logits
    loss = nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=cfg.ignore, reduction="sum"
    )
    return loss, (labels[:, 1:] != cfg.ignore).sum()


@torch.no_grad()
def validate(model, rows):
    model.eval()
    total, tokens = 0.0, 0
    for i in range(0, len(rows), 16):
        loss, count = loss_of(model, batch_of(rows[i : i + 16]))
        total += loss.item()
        tokens += count.item()
    model.train()
    return total / tokens


def make_model():
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32,
            hidden_size=24,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32,
            attention_dropout=0.1,
            initializer_range=0.08,
            tie_word_embeddings=True,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
        )
    )


def main():
    torch.manual_seed(64)
    rng = random.Random(64)
    train_rows = orders(230, seed=1)
    valid_rows = orders(60, seed=2, without=train_rows)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, 1.0, total_iters=cfg.warmup)
    best = (float("inf"), None)
    model.train()
    for epoch in range(cfg.epochs):
        seen, tokens = 0.0, 0
        for group in updates_of(train_rows, rng):
            bearing = sum((labels[:, 1:] != cfg.ignore).sum() for _, labels, _ in group)
            for batch in group:
                loss, count = loss_of(model, batch)
                (loss / bearing).backward()
                seen += loss.item()
                tokens += count.item()
            nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            scheduler.step()
        held_out = validate(model, valid_rows)
        print(f"epoch {epoch}: loss {seen / tokens:.3f}, held out {held_out:.3f}")
        if held_out < best[0]:
            best = held_out, {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(best[1])


main()
