"""A GPT of characters as a recipe."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from surefoot import Recipe


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(batch, length, width)
        return self.dropout(self.out(mixed))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, context: int, vocabulary: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Windows(Dataset):
    def __init__(self, samples: int, context: int, vocabulary: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        moves = torch.randint(1, 4, (samples * context + 1,), generator=generator)
        self.stream, self.context = moves.cumsum(0) % vocabulary, context

    def __len__(self) -> int:
        return (len(self.stream) - 1) // self.context

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * self.context
        x = self.stream[start : start + self.context]
        y = self.stream[start + 1 : start + self.context + 1]
        return x, y


def next_token_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    x, y = batch
    logits = model(x)
    return F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum"), y.numel()


def gpt(layers: int = 2, width: int = 32, heads: int = 4, context: int = 16, lr: float = 1e-3) -> Recipe:
    return Recipe(
        model=lambda: GPT(layers, width, heads, context, vocabulary=48, dropout=0.1),
        data=lambda: Windows(400, context, vocabulary=48, seed=1),
        evaluation=lambda: Windows(40, context, vocabulary=48, seed=2),
        loss=next_token_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr, weight_decay=0.1),
        micro_batch_size=8,
        tokens_per_sample=context,
        global_batch_tokens=16 * context,
        max_grad_norm=1.0,
        max_steps=100,
        evaluate_every=50,
    )
