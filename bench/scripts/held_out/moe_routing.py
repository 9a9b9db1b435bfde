"""Trains a mixture-of-experts language model; tokens are routed to experts by index, with a balancing loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(4)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dtype = torch.bfloat16 if device.type == "cuda" and torch.cuda.get_device_capability()[0] >= 8 else torch.float32
DIM, HEADS, EXPERTS, TOP_K, LAYERS, VOCAB, SEQ, BATCH = 160, 5, 8, 2, 3, 3000, 96, 6


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(DIM, 320, bias=False)
        self.w2 = nn.Linear(320, DIM, bias=False)

    def forward(self, x):
        return self.w2(F.relu(self.w1(x)).square())


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, DIM)
        logits = self.gate(x)
        weights = F.softmax(logits, dim=1, dtype=torch.float)
        top, selected = torch.topk(weights, TOP_K, dim=-1)
        top = (top / top.sum(dim=-1, keepdim=True)).to(x.dtype)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            token, nth = torch.where(selected == e)
            if token.numel() == 0:
                continue
            out.index_add_(0, token, (expert(x[token]) * top[token, nth, None]).to(x.dtype))
        share = F.one_hot(selected, EXPERTS).float().mean((0, 1))
        balance = EXPERTS * (share * weights.mean(0)).sum()
        return out.reshape(shape), balance, torch.bincount(selected.flatten(), minlength=EXPERTS)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out, self.moe = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM), MoE()

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, s, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, DIM)
        x = x + self.out(a)
        y, balance, load = self.moe(self.n2(x))
        return x + y, balance, load


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(SEQ, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        x = self.emb(ids) + self.pos.weight[: ids.size(1)]
        balances, loads = [], []
        for layer in self.layers:
            x, balance, load = layer(x)
            balances.append(balance)
            loads.append(load)
        return self.head(self.norm(x)), torch.stack(balances).sum(), torch.stack(loads)


model = Model().to(device=device, dtype=dtype)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
text = torch.randint(0, VOCAB, (40, SEQ + 1))
for step in range(6):
    ids = text[torch.randperm(40)[:BATCH]].to(device)
    logits, balance, loads = model(ids[:, :-1])
    loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
    (loss + 0.01 * balance).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    busiest = loads.max(dim=1).values.tolist()
    print(f"step {step} loss {loss.item():.4f} balance {balance.item():.3f} norm {norm.item():.2f} busiest {busiest}")
