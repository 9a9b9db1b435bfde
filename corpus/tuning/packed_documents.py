"""A GPT over short documents packed into rows: each attends to itself alone, and its positions begin anew."""

import json
import math
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

CFG = {"vocab": 40, "context": 24, "d_model": 32, "n_head": 4, "n_layer": 2, "dropout": 0.1}
END = 0


def write_corpus(path, documents, seed):
    rng = np.random.default_rng(seed)
    with path.open("w") as out:
        for _ in range(documents):
            start, length = rng.integers(CFG["vocab"]), rng.integers(6, 13)
            body = (start + rng.choice([1, 2, 3, 5], length).cumsum()) % (CFG["vocab"] - 1) + 1
            out.write(json.dumps([*body.tolist(), END]) + "\n")


class PackedRows(torch.utils.data.Dataset):
    """Rows of context + 1 tokens, with the number of the document and the position in it."""

    def __init__(self, path):
        tokens, documents, positions = [], [], []
        for number, line in enumerate(path.read_text().splitlines()):
            document = json.loads(line)
            tokens += document
            documents += [number] * len(document)
            positions += range(len(document))
        rows = (len(tokens) - 1) // CFG["context"]
        self.rows = rows
        self.tokens = torch.tensor(tokens)
        self.documents = torch.tensor(documents)
        self.positions = torch.tensor(positions)

    def __len__(self):
        return self.rows

    def __getitem__(self, r):
        begin = r * CFG["context"]
        end = begin + CFG["context"]
        return {
            "tokens": self.tokens[begin:end],
            "targets": self.tokens[begin + 1 : end + 1],
            "documents": self.documents[begin:end],
            "positions": self.positions[begin:end],
        }


class SelfAttention(nn.Module):
    def __init__(self, d, heads, dropout):
        super().__init__()
        self.heads, self.p = heads, dropout
        self.wq, self.wk, self.wv = (nn.Linear(d, d, bias=False) for _ in range(3))
        self.wo = nn.Linear(d, d, bias=False)

    def forward(self, x, allowed):
        b, t, d = x.shape
        q, k, v = (w(x).view(b, t, self.heads, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        scores = q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)
        scores = scores.masked_fill(~allowed, float("-inf"))
        weights = F.dropout(scores.softmax(dim=-1), self.p, self.training)
        return self.wo((weights @ v).transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, d, heads, dropout):
        super().__init__()
        self.ln_a, self.ln_m = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = SelfAttention(d, heads, dropout)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.Dropout(dropout))

    def forward(self, x, allowed):
        x = x + self.attn(self.ln_a(x), allowed)
        return x + self.mlp(self.ln_m(x))


class DocumentGPT(nn.Module):
    def __init__(self, vocab, context, d_model, n_head, n_layer, dropout):
        super().__init__()
        self.token_emb = nn.Embedding(vocab, d_model)
        self.pos_emb = nn.Embedding(context, d_model)
        self.layers = nn.ModuleList([Layer(d_model, n_head, dropout) for _ in range(n_layer)])
        self.ln = nn.LayerNorm(d_model)
        self.unembed = nn.Linear(d_model, vocab, bias=False)
        self.register_buffer("past", torch.ones(context, context).tril().bool(), persistent=False)
        self.apply(self.init)
        self.unembed.weight = self.token_emb.weight

    @staticmethod
    def init(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, 0.0, 0.05)

    def forward(self, tokens, documents, positions):
        same = documents[:, None, :, None] == documents[:, None, None, :]
        allowed = same & self.past[: tokens.shape[1], : tokens.shape[1]]
        x = self.token_emb(tokens) + self.pos_emb(positions)
        for layer in self.layers:
            x = layer(x, allowed)
        return self.unembed(self.ln(x))


def run_batch(gpt, rows):
    logits = gpt(rows["tokens"], rows["documents"], rows["positions"])
    return F.cross_entropy(logits.view(-1, CFG["vocab"]), rows["targets"].reshape(-1))


def bits_per_token(gpt, loader):
    gpt.eval()
    with torch.no_grad():
        nats = [run_batch(gpt, rows).item() * len(rows["tokens"]) for rows in loader]
    gpt.train()
    return sum(nats) / len(loader.dataset) / math.log(2)


def learning_rate(step, total, peak=4e-3, warm=5):
    if step < warm:
        return peak * (step + 1) / warm
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))


def main(total=36):
    torch.manual_seed(404)
    for name, documents, seed in (("train", 900, 1), ("valid", 60, 2)):
        write_corpus(Path(f"{name}.jsonl"), documents, seed)
    train = torch.utils.data.DataLoader(PackedRows(Path("train.jsonl")), batch_size=8, shuffle=True, drop_last=True)
    valid = torch.utils.data.DataLoader(PackedRows(Path("valid.jsonl")), batch_size=8)
    gpt = DocumentGPT(**CFG)
    optim = torch.optim.AdamW(gpt.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.05)
    for step, rows in zip(range(total), train, strict=False):
        for group in optim.param_groups:
            group["lr"] = learning_rate(step, total)
        loss = run_batch(gpt, rows)
        loss.backward()
        nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optim.step()
        optim.zero_grad()
        if step % 12 == 11:
            print(f"{step + 1} steps: {loss.item():.3f} nats, {bits_per_token(gpt, valid):.3f} bits on new documents")
    torch.save({"gpt": gpt.state_dict(), "cfg": CFG}, "gpt.pt")


if __name__ == "__main__":
    main()
