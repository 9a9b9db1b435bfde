"""Pretrains a Hugging Face BERT on masked tokens: labels are -100 wherever nothing was masked."""

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForMaskedLM

torch.manual_seed(0)
MASK, VOCAB, LENGTH = 1, 48, 14


class Sentences(Dataset):
    def __init__(self, n, seed):
        generator = torch.Generator().manual_seed(seed)
        start = torch.randint(0, 40, (n, 1), generator=generator)
        steps = torch.randint(1, 4, (n, LENGTH), generator=generator)
        self.tokens = 4 + (start + steps.cumsum(1)) % 44

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return self.tokens[i]


def mask_tokens(rows):
    labels = torch.stack(rows)
    inputs = labels.clone()
    chosen = torch.rand(labels.shape) < 0.2
    chosen[:, 0] = True
    labels[~chosen] = -100
    inputs[chosen & (torch.rand(labels.shape) < 0.8)] = MASK
    return inputs, labels


train_loader = DataLoader(Sentences(192, 1), batch_size=16, shuffle=True, collate_fn=mask_tokens)
valid_loader = DataLoader(Sentences(48, 2), batch_size=16, collate_fn=mask_tokens)

config = BertConfig(
    vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=LENGTH,
)  # fmt: skip
model = BertForMaskedLM(config)
optim = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)

for epoch in range(2):
    model.train()
    for inputs, labels in train_loader:
        optim.zero_grad()
        loss = model(input_ids=inputs, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        print(f"loss {loss.item():.4f}")

    model.eval()
    with torch.no_grad():
        losses = [model(input_ids=inputs, labels=labels).loss.item() for inputs, labels in valid_loader]
    print(f"epoch {epoch}: validation {sum(losses) / len(losses):.4f}")
