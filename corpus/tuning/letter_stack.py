"""Letters in packed rows that keep to themselves: several short mails per row, positions begin anew in each."""

import torch
import torch.nn.functional as F
from torch import nn

ROW, PAD, END = 40, 0, 1
WORDS = 20
VOCAB = 2 + WORDS


def mail(generator):
    """Each word follows the last by the step that the first word tells, or is any word now and then."""
    length = int(torch.randint(5, 14, (1,), generator=generator))
    first = int(torch.randint(0, WORDS, (1,), generator=generator))
    step = 1 + first % 3
    words = [first]
    while len(words) < length:
        jump = torch.rand((), generator=generator) < 0.2
        any_word = int(torch.randint(0, WORDS, (1,), generator=generator))
        words.append(any_word if jump else (words[-1] + step) % WORDS)
    return [2 + word for word in words] + [END]


def pack(mails):
    """Rows filled with whole mails, as many as fit; number of the mail (-1 for padding) and position beside."""
    rows, open_row = [], []
    for one in mails:
        if sum(map(len, open_row)) + len(one) > ROW:
            rows.append(open_row)
            open_row = []
        open_row.append(one)
    rows.append(open_row)
    tokens = torch.full((len(rows), ROW), PAD)
    number, place = torch.full((len(rows), ROW), -1), torch.zeros(len(rows), ROW, dtype=torch.long)
    for r, row in enumerate(rows):
        at = 0
        for n, one in enumerate(row):
            tokens[r, at : at + len(one)] = torch.tensor(one)
            number[r, at : at + len(one)] = n
            place[r, at : at + len(one)] = torch.arange(len(one))
            at += len(one)
    return tokens, number, place


def targets_of(tokens, number):
    """The next token of the same mail; ends and padding have none."""
    following = torch.full_like(tokens, -100)
    same = (number[:, 1:] == number[:, :-1]) & (number[:, 1:] >= 0)
    following[:, :-1] = torch.where(same, tokens[:, 1:], -100)
    return following


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 3 * dim), nn.Linear(3 * dim, dim)

    def forward(self, x, allowed):
        b, t, d = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed[:, None])
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class MailModel(nn.Module):
    def __init__(self, dim=32, heads=2, depth=2):
        super().__init__()
        self.word, self.place = nn.Embedding(VOCAB, dim), nn.Embedding(16, dim)
        nn.init.normal_(self.word.weight, std=0.1)
        nn.init.normal_(self.place.weight, std=0.1)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)

    def forward(self, tokens, number, place):
        same = number[:, :, None] == number[:, None, :]
        causal = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
        x = self.word(tokens) + self.place(place)
        for layer in self.layers:
            x = layer(x, same & causal)
        return self.norm(x) @ self.word.weight.T


def token_loss(model, batch, reduction):
    logits = model(*batch)
    return F.cross_entropy(
        logits.flatten(0, 1), targets_of(*batch[:2]).flatten(), ignore_index=-100, reduction=reduction
    )


def main():
    torch.manual_seed(3)
    g = torch.Generator().manual_seed(33)
    train, test = pack([mail(g) for _ in range(700)]), pack([mail(g) for _ in range(100)])
    model = MailModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.95))
    for epoch in range(4):
        model.train()
        for rows in torch.randperm(len(train[0])).split(12):
            loss = token_loss(model, [part[rows] for part in train], "mean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            count = (targets_of(*test[:2]) != -100).sum()
            value = token_loss(model, test, "sum") / count
        print(f"epoch {epoch}: {value.item():.3f} nats per token")


if __name__ == "__main__":
    main()
