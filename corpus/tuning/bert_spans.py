"""Questions and passages for a tiny BERT: is there an answer, where does it begin; two heads, two rates."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertModel

PAD, CLS, SEP, WORD0 = 0, 1, 2, 3
LENGTH = 20


class Passages(Dataset):
    """The word of the question may stand in the passage; what follows it is the answer."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.ids = torch.full((count, LENGTH), PAD)
        self.kinds = torch.zeros(count, LENGTH, dtype=torch.long)
        self.answerable = torch.zeros(count)
        self.begins = torch.zeros(count, dtype=torch.long)
        for row in range(count):
            words = WORD0 + torch.randperm(30, generator=g)
            size = int(torch.randint(8, 16, (), generator=g))
            passage = words[:size].tolist()
            found = bool(torch.rand((), generator=g) < 0.6)
            where = int(torch.randint(0, size - 1, (), generator=g))
            asked = passage[where] if found else int(words[-1])
            tokens = [CLS, asked, SEP, *passage, SEP]
            self.ids[row, : len(tokens)] = torch.tensor(tokens)
            self.kinds[row, 3 : len(tokens)] = 1
            self.answerable[row] = float(found)
            self.begins[row] = 3 + where + 1 if found else 0

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, row):
        return {
            "input_ids": self.ids[row],
            "token_type_ids": self.kinds[row],
            "attention_mask": (self.ids[row] != PAD).long(),
            "answerable": self.answerable[row],
            "begin": self.begins[row],
        }


class Reader(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.bert = BertModel(config, add_pooling_layer=False)
        self.has_answer = nn.Linear(config.hidden_size, 1)
        self.start = nn.Linear(config.hidden_size, 1)

    def forward(self, input_ids, token_type_ids, attention_mask):
        out = self.bert(input_ids, token_type_ids=token_type_ids, attention_mask=attention_mask)
        states = out.last_hidden_state
        start = self.start(states).squeeze(-1).masked_fill(attention_mask == 0, -1e9)
        return self.has_answer(states[:, 0]).squeeze(-1), start


def split_batch(batch):
    inputs = {key: batch[key] for key in ("input_ids", "token_type_ids", "attention_mask")}
    return inputs, batch["answerable"], batch["begin"]


def evaluate(model, loader):
    model.eval()
    right_answerable = right_begin = total = 0
    loss_sum = 0.0
    with torch.no_grad():
        for batch in loader:
            inputs, answerable, begin = split_batch(batch)
            logit, start = model(**inputs)
            loss = nn.functional.cross_entropy(start, begin)
            loss_sum += loss.item() * len(begin)
            right_answerable += ((torch.sigmoid(logit) > 0.5).float() == answerable).sum().item()
            right_begin += (start.argmax(dim=1) == begin).sum().item()
            total += len(begin)
    return {"loss": loss_sum / total, "answerable": right_answerable / total, "begin": right_begin / total}


def main():
    torch.manual_seed(12)
    config = BertConfig(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        pad_token_id=PAD,
    )
    model = Reader(config)
    train_loader = DataLoader(Passages(320, seed=1), batch_size=16, shuffle=True)
    valid_loader = DataLoader(Passages(56, seed=2), batch_size=16)
    heads = [*model.has_answer.parameters(), *model.start.parameters()]
    optimizer = torch.optim.AdamW([{"params": model.bert.parameters(), "lr": 2e-3}, {"params": heads, "lr": 4e-3}])
    bce, ce = nn.BCEWithLogitsLoss(), nn.CrossEntropyLoss()
    for epoch in range(2):
        model.train()
        for batch in train_loader:
            inputs, answerable, begin = split_batch(batch)
            logit, start = model(**inputs)
            loss = bce(logit, answerable) + ce(start, begin)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item(), evaluate(model, valid_loader))


if __name__ == "__main__":
    main()
