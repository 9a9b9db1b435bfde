"""Answers of a packing desk from a small Llama: questions and answers of different lengths, one loop, no Trainer."""

import argparse
import json
import random

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import LlamaConfig, LlamaForCausalLM, get_linear_schedule_with_warmup

PAD, BOS, SEP, EOS = range(4)
IGNORE = -100
BOXES = {"cup": "small box", "lamp": "tall box", "book": "flat box", "vase": "round box", "chair": "large crate"}
EXTRAS = {"cup": "wrap in paper", "lamp": "take off the shade first", "book": "stack", "vase": "wrap twice and mark"}
FILLER = ["please", "today", "for the customer", "before noon", "and tell me at once", "from the blue shelf"]


def write_corpus(counts, seed):
    """No question is asked twice, neither in one file nor in both."""
    rng = random.Random(seed)
    rows = {}
    while len(rows) < sum(counts.values()):
        thing = rng.choice(list(BOXES))
        question = " ".join(["how do I pack the", thing, *rng.sample(FILLER, rng.randint(0, 4))]) + "?"
        rows[question] = f"{BOXES[thing]}, {EXTRAS.get(thing, 'fold')}"
    lines = [json.dumps({"question": question, "answer": answer}) + "\n" for question, answer in rows.items()]
    rng.shuffle(lines)
    for path, count in counts.items():
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(lines[:count])
        lines = lines[count:]


class WordTokenizer:
    def __init__(self, path):
        texts = open(path, encoding="utf-8").read()
        self.words = {word: 4 + i for i, word in enumerate(sorted(set(self.split(texts))))}

    @staticmethod
    def split(text):
        return text.replace("?", " ?").replace(",", " ,").replace('"', " ").replace("{", " ").replace("}", " ").split()

    def __call__(self, text):
        return [self.words[word] for word in self.split(text)]

    def __len__(self):
        return 4 + len(self.words)


class Conversations(IterableDataset):
    """Read from the file, in a new order in every epoch; the workers share the lines among themselves."""

    def __init__(self, path, tokenizer, max_length, shuffle):
        self.path, self.tokenizer, self.max_length, self.shuffle = path, tokenizer, max_length, shuffle
        self.epoch = 0

    def __iter__(self):
        lines = open(self.path, encoding="utf-8").read().splitlines()
        if self.shuffle:
            random.Random(self.epoch).shuffle(lines)
        worker = get_worker_info()
        if worker is not None:
            lines = lines[worker.id :: worker.num_workers]
        for line in lines:
            row = json.loads(line)
            question = [BOS, *self.tokenizer(row["question"]), SEP]
            answer = [*self.tokenizer(row["answer"]), EOS]
            ids, labels = question + answer, [IGNORE] * len(question) + answer
            yield ids[: self.max_length], labels[: self.max_length]


def collate(rows):
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [PAD] * (longest - len(ids)) for ids, _ in rows])
    labels = torch.tensor([labels + [IGNORE] * (longest - len(labels)) for _, labels in rows])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": labels}


def token_loss(model, batch, z_weight=0.0):
    """Summed over the tokens of answers; the z-loss keeps the logits small."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    labels = batch["labels"][:, 1:]
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="sum")
    if z_weight:
        z_loss = logits[labels != IGNORE].logsumexp(dim=-1).pow(2).sum()
        loss = loss + z_weight * z_loss
    return loss


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total, tokens = 0.0, 0
    for batch in loader:
        total += token_loss(model, batch).item()
        tokens += (batch["labels"][:, 1:] != IGNORE).sum().item()
    model.train()
    return total / tokens


def in_groups(loader, size):
    """Lists of micro-batches; the last one of an epoch may be shorter."""
    group = []
    for batch in loader:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=12)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--lr", type=float, default=8e-3)
    parser.add_argument("--max_length", type=int, default=64)
    parser.add_argument("--z_weight", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(7)

    write_corpus({"train.jsonl": 150, "valid.jsonl": 40}, seed=1)
    tokenizer = WordTokenizer("train.jsonl")
    train_set = Conversations("train.jsonl", tokenizer, args.max_length, shuffle=True)
    valid_set = Conversations("valid.jsonl", tokenizer, args.max_length, shuffle=False)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, collate_fn=collate, num_workers=2)
    valid_loader = DataLoader(valid_set, batch_size=8, collate_fn=collate)

    config = LlamaConfig(
        vocab_size=32,
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
    model = LlamaForCausalLM(config)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    per_epoch = -(-150 // (args.batch_size * args.accumulate))
    scheduler = get_linear_schedule_with_warmup(optimizer, 2, args.epochs * per_epoch)

    model.train()
    for epoch in range(args.epochs):
        train_set.epoch = epoch
        summed, counted = 0.0, 0
        for group in in_groups(train_loader, args.accumulate):
            tokens = sum((batch["labels"][:, 1:] != IGNORE).sum() for batch in group)
            optimizer.zero_grad()
            for batch in group:
                loss = token_loss(model, batch, args.z_weight)
                (loss / tokens).backward()
                summed += loss.item()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            counted += tokens.item()
        valid = evaluate(model, valid_loader)
        print(f"epoch {epoch + 1} train {summed / counted:.3f} valid {valid:.3f} lr {scheduler.get_last_lr()[0]:.5f}")
    torch.save(model.state_dict(), "packing.pt")


if __name__ == "__main__":
    main()
