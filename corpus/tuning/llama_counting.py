"""Counting by a tiny Llama: prompts and answers padded to one length, unequal parts accumulated, cosine decay."""

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup

PAD, BOS, EOS, ASK = 0, 1, 2, 3
FIRST, VOCAB = 4, 80
IGNORED = -100
PARTS, STEPS = 2, 24


def tasks(first, last):
    """Count on from a number for some steps, then stop; no task is there twice."""
    order = torch.randperm(600, generator=torch.Generator().manual_seed(1)).tolist()
    rows = []
    for number in order[first:last]:
        start, steps = number // 10, 2 + number % 10
        prompt = [BOS, FIRST + start, FIRST + steps, ASK]
        answer = [FIRST + start + i for i in range(1, steps + 1)] + [EOS]
        rows.append((prompt, answer))
    return rows


def collate(rows):
    longest = max(len(prompt) + len(answer) for prompt, answer in rows)
    ids = torch.full((len(rows), longest), PAD)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    labels = torch.full((len(rows), longest), IGNORED)
    for row, (prompt, answer) in enumerate(rows):
        length = len(prompt) + len(answer)
        ids[row, :length] = torch.tensor(prompt + answer)
        mask[row, :length] = 1
        labels[row, len(prompt) : length] = torch.tensor(answer)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def tiny():
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
    )
    return LlamaForCausalLM(config)


def answer_loss(model, batch):
    """The sum over answered tokens: the caller knows how many there are in the whole update."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    labels = batch["labels"]
    scores, wanted = logits[:, :-1], labels[:, 1:]
    return cross_entropy(scores.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED, reduction="sum")


def endless(loader):
    while True:
        yield from loader


def main():
    torch.manual_seed(33)
    model = tiny()
    train = DataLoader(tasks(0, 320), batch_size=8, shuffle=True, collate_fn=collate)
    check = DataLoader(tasks(320, 360), batch_size=8, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    schedule = get_cosine_schedule_with_warmup(optimizer, 3, STEPS)
    stream = endless(train)
    model.train()
    for step in range(STEPS):
        parts = [next(stream) for _ in range(PARTS)]
        tokens = sum((part["labels"][:, 1:] != IGNORED).sum() for part in parts)
        for part in parts:
            loss = answer_loss(model, part) / tokens
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.eval()
    nats = count = 0
    with torch.no_grad():
        for batch in check:
            nats += answer_loss(model, batch).item()
            count += (batch["labels"][:, 1:] != IGNORED).sum().item()
    print("nats a token", nats / count)
    model.save_pretrained("counting")


if __name__ == "__main__":
    main()
