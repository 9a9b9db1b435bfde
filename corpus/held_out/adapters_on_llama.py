"""LoRA by hand: a small Llama learns one kind of text, then only thin adapters learn another on top of it."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(11)
WORDS, LENGTH = 24, 16


class LoRALinear(nn.Module):
    """A frozen layer and a product of two thin matrices beside it, of which the second begins at zero."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float, dropout: float):
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.empty(rank, base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))
        self.scale = alpha / rank
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.base(x) + self.scale * (self.dropout(x) @ self.down.T @ self.up.T)

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        layer = copy.deepcopy(self.base)
        layer.weight += self.scale * self.up @ self.down
        return layer


def add_adapters(model, rank=4, alpha=16.0, dropout=0.05):
    for parameter in model.parameters():
        parameter.requires_grad = False
    for layer in model.model.layers:
        attention = layer.self_attn
        attention.q_proj = LoRALinear(attention.q_proj, rank, alpha, dropout)
        attention.v_proj = LoRALinear(attention.v_proj, rank, alpha, dropout)


def counting(count, stride, generator):
    """Rows that count on by a stride, from a place of their own; three words of each were misheard."""
    first = torch.randint(0, WORDS, (count, 1), generator=generator)
    rows = (first + stride * torch.arange(LENGTH)) % WORDS
    places = torch.rand(count, LENGTH, generator=generator).topk(3, dim=1).indices
    return rows.scatter(1, places, torch.randint(0, WORDS, (count, 3), generator=generator))


def fit(model, rows, optimizer, epochs):
    for epoch in range(epochs):
        model.train()
        total = 0.0
        order = torch.randperm(len(rows))
        for chosen in order.split(16):
            batch = rows[chosen]
            loss = model(input_ids=batch, labels=batch).loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
            optimizer.step()
            total += loss.item() * len(batch)
        print(f"epoch {epoch}: loss {total / len(rows):.4f}")


@torch.no_grad()
def evaluate(model, rows):
    model.eval()
    logits = model(input_ids=rows).logits[:, :-1]
    return F.cross_entropy(logits.transpose(1, 2), rows[:, 1:]).item()


generator = torch.Generator().manual_seed(2)
config = LlamaConfig(
    vocab_size=WORDS,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    max_position_embeddings=LENGTH,
    use_cache=False,
)
model = LlamaForCausalLM(config)
both = torch.cat([counting(96, 1, generator), counting(96, 5, generator)])
fit(model, both, torch.optim.AdamW(model.parameters(), lr=5e-3), epochs=3)

add_adapters(model)
trainable = [p for p in model.parameters() if p.requires_grad]
print(f"{sum(p.numel() for p in trainable)} of {sum(p.numel() for p in model.parameters())} weights are trained")
new, held = counting(160, 7, generator), counting(48, 7, generator)
print(f"before: {evaluate(model, held):.4f}")
fit(model, new, torch.optim.AdamW(trainable, lr=1e-2, weight_decay=0.0), epochs=4)
print(f"after: {evaluate(model, held):.4f}")
torch.save({k: v for k, v in model.state_dict().items() if k.endswith((".up", ".down"))}, "adapters.pt")
for layer in model.model.layers:
    layer.self_attn.q_proj = layer.self_attn.q_proj.merged()
    layer.self_attn.v_proj = layer.self_attn.v_proj.merged()
print(f"merged: {evaluate(model, held):.4f}")
