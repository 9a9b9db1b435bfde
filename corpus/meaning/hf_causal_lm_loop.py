"""Train a tiny GPT-2 from a config on topic-conditioned pseudo documents, in a hand-written loop."""
import argparse
import math

import numpy as np
import torch
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, get_cosine_schedule_with_warmup

PAD, BOS, SEP, EOS = 0, 1, 2, 3
N_TOPICS, N_WORDS, BRANCH = 3, 36, 4
FIRST_TOPIC = 4
FIRST_WORD = FIRST_TOPIC + N_TOPICS
VOCAB = FIRST_WORD + N_WORDS


class TopicGrammar:
    """For each topic and word, the few words that may follow it."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.next = np.stack([[rng.choice(N_WORDS, BRANCH, replace=False) for _ in range(N_WORDS)]
                              for _ in range(N_TOPICS)])
        self.probs = np.array([0.55, 0.25, 0.15, 0.05])

    def document(self, rng):
        topic = int(rng.integers(N_TOPICS))
        words = [int(rng.integers(N_WORDS))]
        for _ in range(int(rng.integers(10, 27))):
            words.append(int(rng.choice(self.next[topic, words[-1]], p=self.probs)))
        header = [BOS, FIRST_TOPIC + topic, SEP]
        return {"tokens": header + [FIRST_WORD + w for w in words] + [EOS], "header": len(header)}

    def is_allowed(self, topic, a, b):
        return b in self.next[topic, a]


def make_documents(grammar, count, seed):
    rng = np.random.default_rng(seed)
    return [grammar.document(rng) for _ in range(count)]


def collate(docs):
    """Right padding; header and padding are context, not targets."""
    longest = max(len(d["tokens"]) for d in docs)
    input_ids = torch.full((len(docs), longest), PAD)
    labels = torch.full((len(docs), longest), -100)
    for i, doc in enumerate(docs):
        tokens = torch.tensor(doc["tokens"])
        input_ids[i, :len(tokens)] = tokens
        labels[i, doc["header"]:len(tokens)] = tokens[doc["header"]:]
    return {"input_ids": input_ids, "attention_mask": (input_ids != PAD).long(), "labels": labels}


def build_model(args):
    config = GPT2Config(vocab_size=VOCAB, n_positions=48, n_embd=args.hidden, n_layer=2, n_head=4,
                        bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD,
                        resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1)
    return GPT2LMHeadModel(config)


@torch.no_grad()
def evaluate(model, loader):
    """Perplexity per target token over the whole set."""
    model.eval()
    nll, tokens = 0.0, 0
    for batch in loader:
        targets = (batch["labels"][:, 1:] != -100).sum().item()
        nll += model(**batch).loss.item() * targets
        tokens += targets
    model.train()
    return math.exp(nll / tokens)


@torch.no_grad()
def grammatical_rate(model, grammar, samples=24, length=12):
    """Greedy continuations from random first words: the share of steps that the grammar allows."""
    model.eval()
    rng = np.random.default_rng(5)
    topics, words = rng.integers(0, N_TOPICS, samples), rng.integers(0, N_WORDS, samples)
    ids = torch.tensor([[BOS, FIRST_TOPIC + t, SEP, FIRST_WORD + w] for t, w in zip(topics, words)])
    for _ in range(length):
        logits = model(input_ids=ids).logits[:, -1]
        logits[:, :FIRST_WORD] = -float("inf")
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    body = ids[:, 3:].numpy() - FIRST_WORD
    good = [grammar.is_allowed(t, a, b) for t, row in zip(topics, body) for a, b in zip(row[:-1], row[1:])]
    return float(np.mean(good))


def train(args, model, loader):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    other = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05},
                                   {"params": other, "weight_decay": 0.0}], lr=args.lr, betas=(0.9, 0.98))
    updates = args.epochs * len(loader) // args.accumulate
    scheduler = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=8, num_training_steps=updates)
    model.train()
    step, running = 0, []
    for epoch in range(args.epochs):
        for batch in loader:
            loss = model(**batch).loss
            (loss / args.accumulate).backward()
            running.append(loss.item())
            step += 1
            if step % args.accumulate == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        print(f"epoch {epoch} loss {np.mean(running[-len(loader):]):.4f} lr {scheduler.get_last_lr()[0]:.2e}")
    return float(np.mean(running[-10:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--train-docs", type=int, default=768)
    parser.add_argument("--valid-docs", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=21)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    grammar = TopicGrammar(seed=100)
    train_docs = make_documents(grammar, args.train_docs, seed=args.seed)
    valid_docs = make_documents(grammar, args.valid_docs, seed=args.seed + 1)
    train_loader = DataLoader(train_docs, args.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    valid_loader = DataLoader(valid_docs, 32, collate_fn=collate)
    model = build_model(args)
    train_loss = train(args, model, train_loader)
    ppl = evaluate(model, valid_loader)
    rate = grammatical_rate(model, grammar)
    print(f"final train loss {train_loss:.4f}, valid perplexity {ppl:.3f}, grammatical {rate:.3f}")


if __name__ == "__main__":
    main()
