"""Fine-tunes a Hugging Face BERT classifier in a loop of its own, with a linear warm-up and padding masks."""

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

torch.manual_seed(0)
CLS, SEP, PAD, VOCAB = 1, 2, 0, 60


class Pairs(Dataset):
    """Two sentences; are they the same words in another order?"""

    def __init__(self, n, seed):
        generator = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(n):
            length = int(torch.randint(3, 6, (), generator=generator))
            first = torch.randint(3, VOCAB, (length,), generator=generator)
            same = bool(torch.rand((), generator=generator) < 0.5)
            shuffled = first[torch.randperm(length, generator=generator)]
            second = shuffled if same else torch.randint(3, VOCAB, (length,), generator=generator)
            ids = torch.cat([torch.tensor([CLS]), first, torch.tensor([SEP]), second, torch.tensor([SEP])])
            self.rows.append((ids, int(same)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(samples):
    longest = max(len(ids) for ids, _ in samples)
    input_ids = torch.full((len(samples), longest), PAD)
    attention_mask = torch.zeros(len(samples), longest, dtype=torch.long)
    for row, (ids, _) in enumerate(samples):
        input_ids[row, : len(ids)] = ids
        attention_mask[row, : len(ids)] = 1
    labels = torch.tensor([label for _, label in samples])
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


train_dataloader = DataLoader(Pairs(128, 1), batch_size=8, shuffle=True, collate_fn=collate)
eval_dataloader = DataLoader(Pairs(32, 2), batch_size=16, collate_fn=collate)

config = BertConfig(
    vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=16, num_labels=2,
)  # fmt: skip
model = BertForSequenceClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
num_epochs, accumulation = 2, 2
num_training_steps = num_epochs * len(train_dataloader) // accumulation
lr_scheduler = get_linear_schedule_with_warmup(optimizer, 2, num_training_steps)

for epoch in range(num_epochs):
    model.train()
    for step, batch in enumerate(train_dataloader):
        outputs = model(**batch)
        loss = outputs.loss / accumulation
        loss.backward()
        if (step + 1) % accumulation == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()

    model.eval()
    correct = total = 0
    for batch in eval_dataloader:
        with torch.no_grad():
            outputs = model(**batch)
        predictions = outputs.logits.argmax(dim=-1)
        correct += (predictions == batch["labels"]).sum().item()
        total += len(batch["labels"])
    print(f"epoch {epoch}: accuracy {correct / total:.3f}")
model.save_pretrained("pairs")
