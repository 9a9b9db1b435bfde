"""What a caller wants, several things at once: a Hugging Face BERT, pooled by hand, lower layers at lower rates."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertModel

CLS, SEP, PAD = 1, 2, 0
WORDS, MAX_LEN, INTENTS = 60, 14, 4


class Calls(Dataset):
    """An intent is in a call if one of its words is."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.calls = []
        for _ in range(n):
            length = int(torch.randint(4, MAX_LEN - 1, (), generator=g))
            words = torch.randint(10, WORDS, (length,), generator=g)
            wants = (torch.rand(INTENTS, generator=g) < 0.35).float()
            for intent in wants.nonzero().flatten().tolist():
                words[int(torch.randint(length, (), generator=g))] = 3 + intent
            wants = torch.stack([(words == 3 + i).any() for i in range(INTENTS)]).float()
            self.calls.append((words.tolist(), wants))

    def __len__(self):
        return len(self.calls)

    def __getitem__(self, i):
        return self.calls[i]


def to_batch(calls):
    longest = 2 + max(len(words) for words, _ in calls)
    ids = torch.full((len(calls), longest), PAD)
    for row, (words, _) in enumerate(calls):
        ids[row, : len(words) + 2] = torch.tensor([CLS, *words, SEP])
    wants = torch.stack([wants for _, wants in calls])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "wants": wants}


class IntentModel(nn.Module):
    def __init__(self):
        super().__init__()
        config = BertConfig(
            vocab_size=WORDS,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=MAX_LEN + 2,
        )
        self.bert = BertModel(config, add_pooling_layer=False)
        self.dropout = nn.Dropout(0.1)
        self.classifier = nn.Linear(32, INTENTS)

    def forward(self, input_ids, attention_mask):
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        real = attention_mask.unsqueeze(-1).float()
        pooled = (hidden * real).sum(1) / real.sum(1)
        return self.classifier(self.dropout(pooled))


def groups(model, lr):
    """The head at the full rate, each layer below at nine tenths of the one above."""
    found = [{"params": list(model.classifier.parameters()), "lr": lr}]
    layers = [*reversed(model.bert.encoder.layer), model.bert.embeddings]
    for depth, layer in enumerate(layers, start=1):
        found.append({"params": list(layer.parameters()), "lr": lr * 0.9**depth})
    return found


def micro_f1(model, loader):
    model.eval()
    hit = said = true = 0.0
    with torch.no_grad():
        for batch in loader:
            wants = batch.pop("wants").bool()
            guess = model(**batch).sigmoid() > 0.5
            hit += (guess & wants).sum().item()
            said += guess.sum().item()
            true += wants.sum().item()
    return 2 * hit / max(1.0, said + true)


def main():
    torch.manual_seed(88)
    train_loader = DataLoader(Calls(320, seed=10), batch_size=16, shuffle=True, collate_fn=to_batch)
    dev_loader = DataLoader(Calls(40, seed=20), batch_size=16, collate_fn=to_batch)
    model = IntentModel()
    optimizer = torch.optim.AdamW(groups(model, 4e-3), weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min((n + 1) / 6, max(0.05, 1 - n / 60)))
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(3):
        model.train()
        for batch in train_loader:
            wants = batch.pop("wants")
            logits = model(**batch)
            loss = criterion(logits, wants)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        print(f"epoch {epoch}: loss {loss.item():.3f}, micro F1 {micro_f1(model, dev_loader):.3f}")
    torch.save(model.state_dict(), "intents.pt")


if __name__ == "__main__":
    main()
