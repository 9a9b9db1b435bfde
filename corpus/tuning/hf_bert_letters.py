"""Letters to an office, by what they want: a tiny BERT made from its configuration, in a plain loop."""

import copy
import random

import torch
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

WISHES = ["complaint", "question", "thanks", "order"]
PAD, CLS, SEP, FIRST = 0, 1, 2, 3
COMMON, SPECIAL = 40, 6
EPOCHS, ACCUMULATE, BATCH = 4, 2, 8


def write_letters(count, seed):
    """Common words in any order, and among them some that only one wish calls for."""
    chance = random.Random(seed)
    letters = []
    for _ in range(count):
        wish = chance.randrange(len(WISHES))
        words = [FIRST + chance.randrange(COMMON) for _ in range(chance.randint(5, 22))]
        for _ in range(3):
            word = FIRST + COMMON + SPECIAL * wish + chance.randrange(SPECIAL)
            words.insert(chance.randint(0, len(words)), word)
        letters.append({"ids": [CLS, *words, SEP], "wish": wish})
    return letters


def collate(letters):
    longest = max(len(letter["ids"]) for letter in letters)
    ids = torch.tensor([letter["ids"] + [PAD] * (longest - len(letter["ids"])) for letter in letters])
    return {
        "input_ids": ids,
        "attention_mask": (ids != PAD).long(),
        "labels": torch.tensor([letter["wish"] for letter in letters]),
    }


torch.manual_seed(20)
train_letters, valid_letters = write_letters(248, seed=1), write_letters(45, seed=2)
train_loader = DataLoader(train_letters, batch_size=BATCH, shuffle=True, collate_fn=collate)
valid_loader = DataLoader(valid_letters, batch_size=BATCH, collate_fn=collate)

config = BertConfig(
    vocab_size=FIRST + COMMON + SPECIAL * len(WISHES),
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=40,
    num_labels=len(WISHES),
    initializer_range=0.15,
    pad_token_id=PAD,
)
model = BertForSequenceClassification(config)
decayed = [p for p in model.parameters() if p.ndim >= 2]
others = [p for p in model.parameters() if p.ndim < 2]
groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=5e-3)
updates = EPOCHS * -(-len(train_loader) // ACCUMULATE)
schedule = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=3, num_training_steps=updates)

best_loss, best_state = float("inf"), None
epoch = 0
while epoch < EPOCHS:
    model.train()
    optimizer.zero_grad()
    for number, batch in enumerate(train_loader):
        window = min(ACCUMULATE, len(train_loader) - number // ACCUMULATE * ACCUMULATE)
        loss = model(**batch).loss / window
        loss.backward()
        if (number + 1) % ACCUMULATE == 0 or number + 1 == len(train_loader):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()

    model.eval()
    lost = right = seen = 0
    with torch.no_grad():
        for batch in valid_loader:
            out = model(**batch)
            size = len(batch["labels"])
            lost += out.loss.item() * size
            right += (out.logits.argmax(dim=-1) == batch["labels"]).sum().item()
            seen += size
    print(f"epoch {epoch}: validation loss {lost / seen:.3f}, {right / seen:.2f} right")
    if lost / seen < best_loss:
        best_loss, best_state = lost / seen, copy.deepcopy(model.state_dict())
    epoch += 1

model.load_state_dict(best_state)
model.eval()
example = collate(valid_letters[:3])
with torch.no_grad():
    wishes = model(input_ids=example["input_ids"], attention_mask=example["attention_mask"]).logits.argmax(-1)
print([WISHES[wish] for wish in wishes.tolist()], f"with the weights of loss {best_loss:.3f}")
