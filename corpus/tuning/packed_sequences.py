"""Documents of many lengths packed into rows: block masks, positions that begin anew, no target across a border."""

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, BOS, EOS, PAD = 24, 1, 2, 0
ROW, BATCH, WIDTH, HEADS = 48, 8, 32, 4

torch.manual_seed(18)
generator = torch.Generator().manual_seed(5)


def write_documents(count):
    """Each counts up from its first token with a step of its own; 4 to 20 tokens and the end."""
    documents = []
    for _ in range(count):
        length = int(torch.randint(4, 21, (1,), generator=generator))
        start, step = torch.randint(21, (1,), generator=generator), torch.randint(1, 4, (1,), generator=generator)
        body = 3 + (start + step * torch.arange(length)) % 21
        documents.append(torch.cat([torch.tensor([BOS]), body, torch.tensor([EOS])]))
    return documents


def pack(documents):
    """First fit: rows of whole documents; returns tokens, number of the document, position within it."""
    rows = []
    for document in documents:
        row = next((r for r in rows if sum(map(len, r)) + len(document) <= ROW), None)
        if row is None:
            rows.append(row := [])
        row.append(document)
    tokens = torch.full((len(rows), ROW), PAD)
    owner = torch.full((len(rows), ROW), -1)
    position = torch.zeros(len(rows), ROW, dtype=torch.long)
    for i, row in enumerate(rows):
        at = 0
        for number, document in enumerate(row):
            tokens[i, at : at + len(document)] = document
            owner[i, at : at + len(document)] = number
            position[i, at : at + len(document)] = torch.arange(len(document))
            at += len(document)
    return tokens, owner, position


def targets_of(tokens, owner):
    """The next token of the same document; the last of a document and padding have none."""
    targets = torch.full_like(tokens, -100)
    same = (owner[:, 1:] == owner[:, :-1]) & (owner[:, 1:] >= 0)
    targets[:, :-1] = torch.where(same, tokens[:, 1:], -100)
    return targets


def block_mask(owner):
    causal = torch.ones(owner.shape[1], owner.shape[1], dtype=torch.bool).tril()
    same = owner.unsqueeze(2) == owner.unsqueeze(1)
    return (same & causal).unsqueeze(1)  # padding sees padding, so that no row of the softmax is empty


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x, mask):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp(self.norm2(x))


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(ROW, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, tokens, owner, position):
        mask = block_mask(owner)
        x = self.tokens(tokens) + self.positions(position)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.norm(x))


def loss_of(model, tokens, owner, position):
    targets = targets_of(tokens, owner)
    logits = model(tokens, owner, position)
    total = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
    return total, int((targets != -100).sum())


train, test = write_documents(360), pack(write_documents(60))
model = Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
for epoch in range(4):
    model.train()
    order = torch.randperm(len(train)).tolist()
    rows = pack([train[i] for i in order])
    summed = count = 0
    for chosen in torch.randperm(len(rows[0])).split(BATCH):
        total, words = loss_of(model, *(part[chosen] for part in rows))
        loss = total / words
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        summed, count = summed + total.item(), count + words
    model.eval()
    with torch.no_grad():
        held_out, words = loss_of(model, *test)
    print(f"epoch {epoch + 1} rows {len(rows[0])} loss {summed / count:.4f} test {held_out.item() / words:.4f}")
torch.save(model.state_dict(), "reader.pt")
