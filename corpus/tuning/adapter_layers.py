"""Low rank adapters (LoRA): a transformer learns one task, is frozen, and learns a second through small matrices."""

import os
import tempfile

import torch
from torch import nn
from torch.nn import functional as F

VOCAB, LENGTH = 12, 14


class LoRALinear(nn.Module):
    """A frozen linear layer and a correction of low rank that begins at zero."""

    def __init__(self, base, rank=4, alpha=8):
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.a), self.b) * self.scale


class Layer(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Reader(nn.Module):
    def __init__(self, dim=32, depth=2, classes=VOCAB):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, dim)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, dim))
        self.layers = nn.ModuleList(Layer(dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x.mean(dim=1)))


def rows(n, seed, task):
    """Which token is the most frequent (task "most"), or the rest of its division by 3 ("rest")."""
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCAB, (n, LENGTH), generator=g)
    most = torch.randint(0, VOCAB, (n,), generator=g)
    spots = torch.rand(n, LENGTH, generator=g).argsort(dim=1)[:, :5]
    tokens.scatter_(1, spots, most[:, None].expand(-1, 5))
    return tokens, most if task == "most" else most % 3


def fit(model, task, trained, epochs, lr, batch=32):
    tokens, labels = rows(512, 1 if task == "most" else 2, task)
    test_tokens, test_labels = rows(200, 3 if task == "most" else 4, task)
    opt = torch.optim.AdamW(trained, lr=lr, weight_decay=0.0)
    for epoch in range(epochs):
        model.train()
        for chosen in torch.randperm(len(tokens)).split(batch):
            opt.zero_grad()
            loss = F.cross_entropy(model(tokens[chosen]), labels[chosen])
            loss.backward()
            opt.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(test_tokens).argmax(dim=-1) == test_labels).double().mean().item()
        print(f"{task} {epoch}: loss {loss.item():.3f}, accuracy {accuracy:.3f}")


def adapt(model, classes=3):
    """Freezes everything, then puts adapters around attention's layers and a new head on top."""
    model.requires_grad_(False)
    for layer in model.layers:
        layer.qkv, layer.out = LoRALinear(layer.qkv), LoRALinear(layer.out)
    model.head = nn.Linear(model.head.in_features, classes)
    return model


if __name__ == "__main__":
    torch.manual_seed(77)
    folder = tempfile.mkdtemp()
    base_file, adapter_file = os.path.join(folder, "base.pt"), os.path.join(folder, "adapter.pt")
    model = Reader()
    fit(model, "most", model.parameters(), epochs=4, lr=3e-3)
    torch.save(model.state_dict(), base_file)
    model = adapt(model)
    learned = {name: p for name, p in model.named_parameters() if p.requires_grad}
    fit(model, "rest", learned.values(), epochs=4, lr=5e-3)
    torch.save({name: p.detach() for name, p in learned.items()}, adapter_file)  # the rest lies in base.pt

    again = Reader()
    again.load_state_dict(torch.load(base_file))
    again = adapt(again)
    left = again.load_state_dict(torch.load(adapter_file), strict=False)
    assert not left.unexpected_keys
    assert not set(left.missing_keys) & set(learned)
    probe = rows(50, 5, "rest")[0]
    assert torch.allclose(again.eval()(probe), model.eval()(probe), atol=1e-6)
