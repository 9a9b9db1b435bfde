"""Notices on the board of a village hall sorted by topic: a small BERT from its config, in a plain loop."""

import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from transformers import BertConfig, BertModel, get_linear_schedule_with_warmup

random.seed(11)
np.random.seed(11)
torch.manual_seed(11)

TOPICS = {
    "Lost": "lost found missing collar reward cat dog keys wallet tabby answers".split(),
    "Music": "concert choir band evening tickets piano rehearsal songs fiddle audience".split(),
    "Sale": "sale bargain pounds books cakes stall jumble furniture cash prices".split(),
    "Council": "council meeting minutes agenda road planning vote bins hedge drainage".split(),
}
FILLER = "the a on in at hall friday saturday church street please ring after before for and with all near our".split()
EPOCHS, BATCH_SIZE, LONGEST = 6, 32, 24
PAD, CLS = 0, 1


def write_notice(words):
    length = np.random.randint(6, LONGEST)
    telling = np.random.rand(length) < 0.22
    return " ".join(random.choice(words if tell else FILLER) for tell in telling)


# the notices, none of them twice
board = {}
while len(board) < 480:
    topic = random.choice(sorted(TOPICS))
    board.setdefault(write_notice(TOPICS[topic]), topic)
texts, topics = list(board), list(board.values())
number = {topic: index for index, topic in enumerate(sorted(TOPICS))}
labels = [number[topic] for topic in topics]
order = np.random.permutation(len(texts))
texts, labels = [texts[i] for i in order], [labels[i] for i in order]
train_texts, train_labels = texts[:384], labels[:384]
test_texts, test_labels = texts[384:], labels[384:]
vocabulary = {word: index for index, word in enumerate(sorted({w for t in train_texts for w in t.split()}), start=3)}


def tokenize(text):
    return [CLS] + [vocabulary.get(word, 2) for word in text.split()]


def collate(texts, labels):
    ids = [tokenize(text) for text in texts]
    longest = max(len(row) for row in ids)
    return {
        "input_ids": torch.tensor([row + [PAD] * (longest - len(row)) for row in ids]),
        "attention_mask": torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids]),
        "labels": torch.tensor(labels),
    }


def batches(texts, labels, shuffle):
    order = list(range(len(texts)))
    if shuffle:
        random.shuffle(order)
    chunks = [order[start : start + BATCH_SIZE] for start in range(0, len(order), BATCH_SIZE)]
    for chunk in chunks:
        yield collate([texts[i] for i in chunk], [labels[i] for i in chunk])


class NoticeClassifier(nn.Module):
    def __init__(self, config, classes):
        super().__init__()
        self.bert = BertModel(config, add_pooling_layer=False)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(config.hidden_size, classes)

    def forward(self, input_ids, attention_mask):
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1)
        pooled = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
        return self.head(self.dropout(pooled))


config = BertConfig(
    vocab_size=3 + len(vocabulary),
    hidden_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=96,
    max_position_embeddings=LONGEST + 1,
    pad_token_id=PAD,
    initializer_range=0.05,
)
model = NoticeClassifier(config, len(TOPICS))
model.bert.requires_grad_(False)  # in the first epoch only the head is trained
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
steps = EPOCHS * len(train_texts) // BATCH_SIZE
scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=6, num_training_steps=steps)


def train_epoch():
    model.train()
    losses = []
    for batch in batches(train_texts, train_labels, shuffle=True):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(batch["input_ids"], batch["attention_mask"])
        loss = criterion(logits.float(), batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def evaluate():
    model.eval()
    total, right = 0.0, 0
    for batch in batches(test_texts, test_labels, shuffle=False):
        logits = model(batch["input_ids"], batch["attention_mask"])
        test_loss = F.cross_entropy(logits, batch["labels"])
        total += test_loss.item() * len(logits)
        right += (logits.argmax(dim=-1) == batch["labels"]).sum().item()
    return total / len(test_labels), right / len(test_labels)


for epoch in range(EPOCHS):
    if epoch == 1:
        model.bert.requires_grad_(True)
    train_loss = train_epoch()
    test_loss, accuracy = evaluate()
    print(f"epoch {epoch}  train {train_loss:.3f}  test {test_loss:.3f}  right {accuracy:.1%}")
