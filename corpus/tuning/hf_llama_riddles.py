"""Riddles about numbers and their answers: a tiny Llama, the loss on the answer only, windows of two batches."""

import random

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup

WORDS = [
    "<pad>",
    "<bos>",
    "<eos>",
    *["who", "is", "more", "than", "less", "by", "of", "the", "twice", "?", "i", "am", "sum", "and"],
]
NUMBERS = [str(n) for n in range(41)]
IDS = {word: n for n, word in enumerate(WORDS + NUMBERS)}
PAD, BOS, EOS = 0, 1, 2
BATCH, WINDOW, EPOCHS = 16, 2, 4


def riddle(rng):
    a, b = rng.randrange(21), rng.randrange(1, 10)
    kind = rng.randrange(4)
    if kind == 0:
        return f"who is more than {a} by {b} ?", f"i am {a + b}"
    if kind == 1 and a >= b:
        return f"who is less than {a} by {b} ?", f"{a - b}"
    if kind == 2:
        return f"who is twice {a} ?", f"i am twice {a} and i am {2 * a}"
    return f"the sum of {a} and {b} ?", f"the sum is {a + b}"


def encode(text):
    return [IDS[word] for word in text.split()]


def example(question, answer):
    prompt, rest = [BOS, *encode(question)], [*encode(answer), EOS]
    ids = torch.tensor(prompt + rest)
    labels = ids.clone()
    labels[: len(prompt)] = -100
    return {"input_ids": ids, "labels": labels}


def collate(rows):
    ids = pad_sequence([row["input_ids"] for row in rows], batch_first=True, padding_value=PAD)
    labels = pad_sequence([row["labels"] for row in rows], batch_first=True, padding_value=-100)
    lengths = torch.tensor([len(row["input_ids"]) for row in rows])
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def answered(model, loader):
    """Loss of a token, and the share of answers in which every token is right."""
    model.eval()
    loss, tokens, right, rows = 0.0, 0, 0, 0
    with torch.no_grad():
        for batch in loader:
            output = model(**batch)
            targets = batch["labels"][:, 1:]
            wanted = targets != -100
            loss += output.loss.item() * wanted.sum().item()
            tokens += wanted.sum().item()
            guesses = output.logits[:, :-1].argmax(-1)
            right += ((guesses == targets) | ~wanted).all(1).sum().item()
            rows += len(targets)
    return loss / tokens, right / rows


rng = random.Random(5)
torch.manual_seed(31)
riddles = sorted({riddle(rng) for _ in range(2000)})
rng.shuffle(riddles)
examples = [example(*pair) for pair in riddles]
train_loader = DataLoader(examples[50:402], batch_size=BATCH, shuffle=True, collate_fn=collate)
held_loader = DataLoader(examples[:50], batch_size=BATCH, collate_fn=collate)

config = LlamaConfig(
    vocab_size=len(IDS),
    hidden_size=48,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=32,
    pad_token_id=PAD,
    bos_token_id=BOS,
    eos_token_id=EOS,
    tie_word_embeddings=True,
    use_cache=False,
)
model = LlamaForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
steps = EPOCHS * len(train_loader) // WINDOW
scheduler = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=4, num_training_steps=steps)

for epoch in range(EPOCHS):
    model.train()
    window, epoch_loss = [], 0.0
    for batch in train_loader:
        window.append(batch)
        if len(window) < WINDOW:
            continue
        tokens = sum((part["labels"][:, 1:] != -100).sum() for part in window)
        optimizer.zero_grad()
        for part in window:
            loss = model(**part, num_items_in_batch=tokens).loss
            loss.backward()
            epoch_loss += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        window = []
    held_loss, right = answered(model, held_loader)
    print(f"{epoch}: {epoch_loss * WINDOW / len(train_loader):.3f}, held {held_loss:.3f}, {right:.2f} answered")

torch.save(model.state_dict(), "riddles.pt")
