"""Insurance claims sorted to three desks: BERT warmed up on masked words, then fine-tuned for the desk."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, get_linear_schedule_with_warmup

PAD, CLS, SEP, MASK, FIRST_WORD = 0, 1, 2, 3, 4
DESKS = ("motor", "water", "travel")


@dataclass
class Settings:
    width: int = 32
    layers: int = 1
    claims: int = 280
    held_out: int = 70
    micro_batch: int = 15
    accumulate: int = 2
    epochs: int = 4
    lr: float = 4e-3
    mlm_steps: int = 12
    mlm_lr: float = 3e-3
    seed: int = 4


def write_claims(s):
    """Texts of 5 to 16 words; each desk has ten words of its own among 26 common ones."""
    g = torch.Generator().manual_seed(s.seed)
    texts, desks = [], []
    for _ in range(s.claims):
        desk = int(torch.randint(len(DESKS), (1,), generator=g))
        length = int(torch.randint(5, 17, (1,), generator=g))
        words = torch.randint(FIRST_WORD, FIRST_WORD + 26, (length,), generator=g)
        telling = FIRST_WORD + 26 + 10 * desk + torch.randint(10, (length,), generator=g)
        words = torch.where(torch.rand(length, generator=g) < 0.5, telling, words)
        texts.append([CLS, *words.tolist(), SEP])
        desks.append(desk)
    return texts, desks


def collate(texts, desks):
    longest = max(len(text) for text in texts)
    input_ids = torch.tensor([text + [PAD] * (longest - len(text)) for text in texts])
    attention_mask = (input_ids != PAD).long()
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": torch.tensor(desks)}


def batches(texts, desks, size, shuffle):
    order = torch.randperm(len(texts)).tolist() if shuffle else range(len(texts))
    for start in range(0, len(texts), size):
        rows = list(order)[start : start + size]
        yield collate([texts[i] for i in rows], [desks[i] for i in rows])


def mask_words(batch):
    ids = batch["input_ids"]
    masked = (torch.rand(ids.shape) < 0.2) & (ids >= FIRST_WORD)
    masked[:, 1] = True
    labels = ids.clone()
    ids = ids.masked_fill(masked, MASK)
    labels[ids != MASK] = -100
    return {"input_ids": ids, "attention_mask": batch["attention_mask"], "labels": labels}


def pretrain(config, s, texts, desks):
    mlm = BertForMaskedLM(config)
    mlm.train()
    optimizer = torch.optim.AdamW(mlm.parameters(), lr=s.mlm_lr)
    step = 0
    while step < s.mlm_steps:
        for batch in batches(texts, desks, 2 * s.micro_batch, shuffle=True):
            loss = mlm(**mask_words(batch)).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(mlm.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step == s.mlm_steps:
                break
    print(f"masked words: loss {loss.item():.4f} after {step} steps")
    torch.save(mlm.bert.state_dict(), "encoder.pt")


def evaluate(model, texts, desks, size):
    model.eval()
    right = 0
    with torch.no_grad():
        for batch in batches(texts, desks, size, shuffle=False):
            guess = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits.argmax(dim=-1)
            right += (guess == batch["labels"]).sum().item()
    return right / len(texts)


def finetune(config, s, train, test):
    texts, desks = train
    model = BertForSequenceClassification(config)
    # the encoder of the masked-word model has no pooler, so that one begins anew
    missing = model.bert.load_state_dict(torch.load("encoder.pt"), strict=False).missing_keys
    assert all(name.startswith("pooler.") for name in missing)
    shares = torch.bincount(torch.tensor(desks), minlength=len(DESKS)) / len(desks)
    weights = 1 / (len(DESKS) * shares)
    optimizer = torch.optim.AdamW(model.parameters(), lr=s.lr, weight_decay=0.01)
    micro = -(-len(texts) // s.micro_batch)
    steps = s.epochs * -(-micro // s.accumulate)
    scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=3, num_training_steps=steps)
    for epoch in range(s.epochs):
        model.train()
        running = 0.0
        optimizer.zero_grad()
        for i, batch in enumerate(batches(texts, desks, s.micro_batch, shuffle=True), start=1):
            output = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
            loss = F.cross_entropy(output.logits, batch["labels"], weight=weights)
            (loss / s.accumulate).backward()
            running += loss.item() * len(batch["labels"])
            if i % s.accumulate == 0 or i == micro:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        accuracy = evaluate(model, *test, size=32)
        print(f"epoch {epoch + 1} loss {running / len(texts):.4f} accuracy {accuracy:.3f}")
    torch.save({"model": model.state_dict(), "config": config.to_dict()}, "claims.pt")
    return model


def main():
    s = Settings()
    torch.manual_seed(s.seed)
    texts, desks = write_claims(s)
    cut = s.claims - s.held_out
    train, test = (texts[:cut], desks[:cut]), (texts[cut:], desks[cut:])
    config = BertConfig(
        vocab_size=FIRST_WORD + 26 + 10 * len(DESKS),
        hidden_size=s.width,
        num_hidden_layers=s.layers,
        num_attention_heads=4,
        intermediate_size=2 * s.width,
        max_position_embeddings=24,
        num_labels=len(DESKS),
        initializer_range=0.1,
        pad_token_id=PAD,
    )
    pretrain(config, s, *train)
    model = finetune(config, s, train, test)
    print(f"final accuracy {evaluate(model, *test, size=32):.3f}")


if __name__ == "__main__":
    main()
